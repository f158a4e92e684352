"""Instants that a clock which was ahead has written: how they are told, and when they count all the same. Pure.

Nobody can tell whose clock is wrong, so nothing is judged by such an instant alone: what it was for (a back-off, a
pause, a retention) lasts as long as it would have, from the moment at which somebody noticed. A clock that is behind
for a while therefore does no harm: it notices a lot, and is right again before anything follows from that.
"""

from __future__ import annotations

from .machine import SECOND

SLACK = 60 * SECOND  # clocks differ, and are set right in small steps
NEVER = 1 << 60  # noticed: not so far
FRESH = 120 * SECOND  # so long after it was noticed, it may be the own clock that is wrong, and soon right again
LOOKED = 600 * SECOND  # so long after it was noticed, back-offs are looked at: that reads all that wait


def is_awaited(at: int, now: int, period: int) -> bool:
    """Whether it is too early for what happens once a period. Further ahead than one no right clock has put it."""
    return now < at <= now + period


def is_ahead(at: int, now: int) -> bool:
    return at > now + SLACK


def age_s(at: int, now: int) -> float:
    """How long ago that was. Never less than nothing, but for what lies ahead."""
    seconds = (now - at) / SECOND
    return seconds if is_ahead(at, now) else max(0.0, seconds)


def has_stood(noticed_at: int, now: int) -> bool:
    """Whether that a clock was ahead has been true for a while, by this clock, and not for long.

    A notice in the future, or of long ago, was written by another clock: it says nothing.
    """
    return FRESH < now - noticed_at <= LOOKED
