"""What the task of every queue does: it counts, and where pick-up is measured it says when it began.

The count is shared memory, a word for each process, so that watching costs neither the queue's store nor the job much.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time

from .peer import PLACE

WORDS = 1024  # processes that live at the same time have pids less than so many apart
RAN, STARTS = "ran", "starts"
START = struct.Struct("<qq")  # the job's number; nanoseconds of the clock that all processes share

_lock = threading.Lock()
_words: memoryview | None = None
_telling = bool(os.environ.get("COMPARE_STARTS"))


def ran(n: int) -> None:
    global _words
    if _telling:
        record = START.pack(n, time.monotonic_ns())
        with open(os.path.join(PLACE, STARTS), "ab", buffering=0) as out:
            out.write(record)
    with _lock:
        if _words is None:
            _words = words(PLACE)
        _words[os.getpid() % WORDS] += 1


def prepare(place: str) -> None:
    """Nothing has run yet."""
    with open(os.path.join(place, RAN), "wb") as file:
        file.truncate(WORDS * 8)
    open(os.path.join(place, STARTS), "wb").close()


def words(place: str) -> memoryview:
    with open(os.path.join(place, RAN), "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), WORDS * 8)).cast("Q")


def starts(place: str) -> dict[int, int]:
    """When each job began; the first time, should it have run again."""
    found: dict[int, int] = {}
    with open(os.path.join(place, STARTS), "rb") as file:
        data = file.read()
    for n, at in START.iter_unpack(data[: len(data) // START.size * START.size]):
        found.setdefault(n, at)
    return found
