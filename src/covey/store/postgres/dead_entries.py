"""Where a claim goes on when the way from the beginning is long.

Claimed jobs leave dead entries at the head of the index of pending ones. Somebody's long transaction keeps the server
from forgetting them, and then every look passes all of them: 200,000 take a third of a second. So once looks have
become slow, the next ones begin where the last one found something, or behind the newest job if it found nothing, and
the long way is taken only every second. What comes in before the frontier meanwhile (a retry, a child, another
priority) waits that long.

A busy machine makes looks slow as well, and then all this only costs. So time counts only where the way is not known to
be short: a turn in one message counts the entries, if the server does (``track_counts``).
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
LONG = 10_000  # entries that lead nowhere: fewer do not make a look slow
SHORTCUT_S = 10.0

Looked = Callable[[float], tuple[float, float]]  # of a look that began then: from when to when it counts
Rows = list[tuple[Any, ...]]
Key = tuple[int, int, int]  # priority, seq, id


def is_slow(took: float, jobs: int) -> bool:
    """Whether a look that has found so many took longer than it should."""
    return took > SLOW_S + jobs * JOB_S


class Frontier(Struct):
    """Of one lane."""

    slow: int = 0
    until: float = 0.0
    key: Key | None = None  # go on from here …
    newest: int | None = None  # … or behind this id

    def look(self, began: float, looked: Looked, whole: Callable[[], Rows], onward: Callable[[Frontier], Rows]) -> Rows:
        """The next rows, each beginning with (-priority, seq, id): of the whole lane, or from the frontier onward."""
        if began < self.until:
            rows = onward(self)
            self.advance(rows)
            return rows
        rows = whole()
        self.note(*looked(began), len(rows), rows)
        return rows

    def note(self, began: float, ended: float, jobs: int, rows: Rows) -> None:
        """So long took a look at the whole lane, with so many jobs in it and these first."""
        took = ended - began
        self.slow = self.slow + 1 if is_slow(took, jobs) else 0
        if self.slow >= SLOW_LOOKS:
            self.until = ended + max(LASTS_S, took * SHARE)
            self.key = self.newest = None
            self.advance(rows)

    def advance(self, rows: Rows) -> None:
        if rows:
            self.key = (-rows[0][0], rows[0][1], rows[0][2])


class Way(Struct):
    """To the first job, as turns in one message find it.

    They cannot begin anywhere else. So once it is long, and slow for that, they are left for a while to turns that have
    a frontier; a long while, for those have slow looks of their own. A long way that is quick is still the quickest,
    and a short one that is slow is so because the machine is busy.
    """

    slow: int = 0
    until: float = 0.0  # not taken
    short_until: float = 0.0

    def note(self, began: float, ended: float, passed: int | None, jobs: int) -> None:
        """So long took a turn that passed so many entries for so many jobs. None: nobody counts, so time alone does."""
        is_short = passed is not None and passed <= LONG + jobs
        self.short_until = ended + LASTS_S if is_short else 0.0
        self.slow = self.slow + 1 if not is_short and is_slow(ended - began, jobs) else 0
        if self.slow >= SLOW_LOOKS:
            self.until = ended + SHORTCUT_S

    def is_short(self, now: float) -> bool:
        """Known to be, so that who is slow is so for another reason."""
        return now < self.short_until


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
