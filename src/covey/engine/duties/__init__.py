"""Housekeeping: bounded, inside turns, no process of its own. One pool per period wins a duty's row.

duty             the shape of all of them: a name, a period, what is done
heal_trees       parents that wait for nobody, and what waits for a clock that was ahead
heal_flights     followers of a flight that is none any more
collect_cache    what is more than the cache may keep
prune            history past its time
forget_requests  old answers
forget_ticks     what was decided long ago
resume_queues    pauses that are over
count_jobs       rows are counted as they come
"""

from __future__ import annotations

from random import Random

from ...core import clocks
from ...store.store import Store
from . import collect_cache, count_jobs, forget_requests, forget_ticks, heal_flights, heal_trees, prune, resume_queues
from .duty import LONGEST_PERIOD as LONGEST_PERIOD
from .duty import PERIOD as PERIOD

# In this order: healing comes first, because the others judge by what it has noticed of clocks that were ahead.
ALL = (
    heal_trees.DUTY,
    heal_flights.DUTY,
    prune.DUTY,
    collect_cache.DUTY,
    forget_requests.DUTY,
    forget_ticks.DUTY,
    resume_queues.DUTY,
    count_jobs.DUTY,
)


class Housekeeping:
    """Of one engine: when it looks next whether duties are to be done."""

    def __init__(self) -> None:
        self._at = 0

    def is_due(self, now: int) -> bool:
        return not clocks.is_awaited(self._at, now, PERIOD)

    def do(self, store: Store, now: int, rng: Random) -> None:
        more = do(store, now, rng)
        self._at = now if more else now + PERIOD


def do(store: Store, now: int, rng: Random) -> bool:
    """What was due and nobody else's is done. Whether more of it waits right behind."""
    more = [duty.do(store, now, rng) for duty in ALL]
    return any(more)
