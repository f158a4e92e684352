"""What a body may hold beyond its types: nothing that the database cannot store, or that no view could show."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from ..core.check import YEAR_10000, check_queue
from ..core.turn import PoolInfo, Turn
from ..errors import InvalidInput

LEASE_S = (1.0, 86_400.0)
MOST_COUNT = 1_000_000
LONGEST = 4096  # characters of a name

# Only a body in which one of these occurs is looked at closely: most are not.
_JSON = re.compile(rb"\d{19}|\\u0000")
_MSGPACK = re.compile(rb"\xcf[\x80-\xff]|\x00")
PIECE = 1 << 20  # bytes that are searched at a time: nobody else runs meanwhile
OVERLAP = 32  # no pattern is longer
# JSON of whoever sent it, text that is cleaned when it is stored, and specs: `check_spec` looks at all they hold.
_FREE = {"result", "jobs", "stdout", "stderr", "error", "detail", "output", "reports", "specs"}


def check_body(data: bytes, value: Any, *, is_json: bool) -> None:
    """InvalidInput if there is a number of more than 64 bits, or a NUL in a name."""
    suspect = _JSON if is_json else _MSGPACK
    found = any(suspect.search(data, at, at + PIECE + OVERLAP) for at in range(0, len(data), PIECE))
    if found and (problem := _problem(value)):
        raise InvalidInput(problem)


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        return "a name has no NUL in it" if "\x00" in value else None
    if isinstance(value, int):
        return None if -(1 << 63) <= value < 1 << 63 else f"{value} is too large a number; 64 bits are the limit"
    if isinstance(value, Struct):
        parts: Any = (getattr(value, name) for name in value.__struct_fields__ if name not in _FREE)
    elif isinstance(value, dict):
        parts = (part for pair in value.items() for part in pair)
    elif isinstance(value, list | tuple):
        parts = value
    else:
        return None
    return next(filter(None, map(_problem, parts)), None)


def check_pool(info: PoolInfo) -> PoolInfo:
    """The pool as it may be registered from elsewhere."""
    if not LEASE_S[0] <= info.lease_s <= LEASE_S[1]:
        raise InvalidInput(f"lease_s {info.lease_s!r}: from {LEASE_S[0]:g} to {LEASE_S[1]:g} seconds")
    if not 0 <= info.count <= MOST_COUNT:
        raise InvalidInput(f"count {info.count}: from 0 to {MOST_COUNT:,} workers")
    for name in ("name", "host", "boot", "version", "app", "log", "cgroup", "ticket"):
        text = getattr(info, name)
        if text is not None and (len(text) > LONGEST or "\x00" in text):
            raise InvalidInput(f"{name}: at most {LONGEST:,} characters, none of them NUL")
    for queue in (*(info.queues or ()), *(info.types or ())):
        check_queue(queue)
    return info


def check_turn(turn: Turn) -> Turn:
    """A turn whose times can be shown: one worker with a start in the year 300,000 would spoil every list of pools."""
    times: list[int | None] = [event.at for event in turn.events]
    for report in turn.reports:
        times += (report.started_at, report.finished_at)
        numbers = (report.id, report.fence, report.exit_code or 0)
        if any(not -(1 << 63) <= number < 1 << 63 for number in numbers):
            raise InvalidInput(f"the report of job {report.id}: 64 bits are the limit of a number")
    for worker in turn.workers or ():
        times += (worker.started_at, worker.busy_since)
    if strange := [at for at in times if at is not None and not -YEAR_10000 < at < YEAR_10000]:
        raise InvalidInput(f"{strange[0]} is no time: microseconds since 1970, before the year 10000")
    return turn
