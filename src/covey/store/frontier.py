"""Where a claim goes on when the way from the beginning is long.

Claimed jobs leave dead entries at the head of the index of pending ones. Somebody's long transaction keeps the server
from forgetting them, and then every look passes all of them: 200,000 take a third of a second. So once looks have
become slow, the next ones begin where the last one found something, or behind the newest job if it found nothing, and
the long way is taken only every second. What comes in before the frontier meanwhile (a retry, a child, another
priority) waits that long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

SLOW_S = 0.03
JOB_S = 0.0002  # more for each job that is found
SLOW_LOOKS = 3  # in a row: a busy server alone is no reason
LASTS_S = 1.0
SHARE = 20  # the long way may take a twentieth of the time

Clock = Callable[[], float]
Rows = list[tuple[Any, ...]]
Key = tuple[int, int, int]  # priority, seq, id


def is_slow(took: float, jobs: int) -> bool:
    """Whether a look that has found so many took longer than it should."""
    return took > SLOW_S + jobs * JOB_S


class Frontier(Struct):
    """Of one lane."""

    lasts_s: float = LASTS_S
    slow: int = 0
    until: float = 0.0
    key: Key | None = None  # go on from here …
    newest: int | None = None  # … or behind this id

    def look(self, clock: Clock, whole: Callable[[], Rows], onward: Callable[[Frontier], Rows]) -> Rows:
        """The next rows, each beginning with (-priority, seq, id): of the whole lane, or from the frontier onward."""
        began = clock()
        if began < self.until:
            rows = onward(self)
            self.advance(rows)
            return rows
        rows = whole()
        self.note(began, clock(), len(rows), rows)
        return rows

    def note(self, began: float, ended: float, jobs: int, rows: Rows) -> None:
        """So long took a look at the whole lane, with so many jobs in it and these first."""
        took = ended - began
        self.slow = self.slow + 1 if is_slow(took, jobs) else 0
        if self.slow >= SLOW_LOOKS:
            self.until = ended + max(self.lasts_s, took * SHARE)
            self.key = self.newest = None
            self.advance(rows)

    def advance(self, rows: Rows) -> None:
        if rows:
            self.key = (-rows[0][0], rows[0][1], rows[0][2])


class Survey(Struct):
    """Which lanes have work: a look at all of them passes the same dead entries, so it is kept for a while too.

    That there was none is believed only of jobs up to ``newest``.
    """

    slow: int = 0
    until: float = 0.0
    lanes: Rows = []
    newest: int | None = None

    def known(self, now: float) -> Rows | None:
        return self.lanes if now < self.until else None

    def note(self, began: float, ended: float, lanes: Rows) -> None:
        took = ended - began
        self.slow = self.slow + 1 if took > SLOW_S else 0
        if self.slow >= SLOW_LOOKS:
            self.until, self.lanes = ended + took * SHARE, lanes
