"""A duty: what somebody must do about once a period, whoever it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from msgspec import Struct

from ...core.clocks import NEVER, SLACK
from ...core.machine import SECOND
from ...store.store import Store

BATCH = 1000  # as much of anything is done at a time; the rest comes in the next turn
PERIOD = 30 * SECOND
LONGEST_PERIOD = 600 * SECOND  # of any duty: what is put off further was so by a clock that was ahead


class Due(Struct):
    """A duty that is ours for a period."""

    now: int
    rng: Random
    cursor: int  # where it was left; set it, and it is found there the next time
    noticed_at: int  # when somebody saw last that a clock was ahead; or NEVER


@dataclass(frozen=True)
class Duty:
    """What one pool does in a period for all.

    ``name`` is its row's, which whoever finds none adds. ``run`` does at most one batch and says whether more waits
    right behind: then it is due again in the next turn. A row that is put off by more than ``period`` was put off by a
    clock that is ahead, and so is due; the duty that ``notes`` this keeps the instant as its cursor.
    """

    name: str
    run: Callable[[Store, Due], bool]
    period: int = PERIOD
    notes: bool = False

    def do(self, store: Store, now: int, rng: Random) -> bool:
        """It is done, if it is due and nobody else has it. Whether more waits."""
        next_at = now + self.period
        late = next_at + SLACK
        found = store.ask("take_duty", name=self.name, next_at=next_at, now=now, late=late, notes=self.notes)
        if not found:
            return False
        cursor, noticed_at = found[0]
        due = Due(now, rng, cursor, (cursor if self.notes else noticed_at) or NEVER)
        more = self.run(store, due)
        if more or due.cursor != cursor:
            store.ask("set_duty_cursor", name=self.name, cursor=due.cursor, next_at=now if more else next_at)
        return more
