"""The mark of everything that a pool starts: COVEY_RUN in its environment, as others see it in /proc."""

from __future__ import annotations

import ctypes
import os

MARK = "COVEY_RUN"  # <database_id>:<pool>:<job>:<fence>
BLANK = "-" * 64  # room for a mark, in the environment of a process that is started before its pool has a number

_libc = ctypes.CDLL(None)
_libc.getenv.restype = ctypes.c_void_p
_place: int | None = None  # where our own mark stands, in the memory that the kernel shows


def reserve() -> None:
    """Remembers where the mark stands. Before anybody else's code runs: that may give the name another value."""
    global _place
    _place = _libc.getenv(MARK.encode()) if os.environ.get(MARK) == BLANK else None


def write(text: str) -> bool:
    """This process, and what it starts from now on, is marked. False if nobody else could see it."""
    value = text.encode()
    if _place is None or len(value) > len(BLANK):
        return False
    # What /proc shows is the memory that the process was started with, so the value is put there, over the blank.
    ctypes.memmove(_place, value.ljust(len(BLANK), b"\0"), len(BLANK))
    os.environ[MARK] = text
    with open("/proc/self/environ", "rb") as environ:
        return f"{MARK}={text}".encode() in environ.read().split(b"\0")
