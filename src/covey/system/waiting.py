"""Until descriptors can be read or written, and whether anybody reads what we write."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Sequence
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


if sys.platform == "win32":

    def readable(files: Sequence[int | HasFileno], timeout_s: float | None = None) -> list[int]:
        """Descriptors of those that can be read, or have ended, within so long; None: however long."""
        found, _, _ = select.select(files, [], [], timeout_s)
        return [each if isinstance(each, int) else each.fileno() for each in found]

    def writable(fd: int, timeout_s: float) -> bool:
        """Windows waits for sockets alone: to a pipe or a terminal one simply writes."""
        return True

    def is_abandoned(fd: int, timeout_s: float = 0.0) -> bool:
        """Not told here: the next write finds out."""
        time.sleep(timeout_s)
        return False

else:

    def readable(files: Sequence[int | HasFileno], timeout_s: float | None = None) -> list[int]:
        """Descriptors of those that can be read, or have ended, within so long; None: however long."""
        watch = select.poll()  # not select, which ends at descriptor 1,023
        for each in files:
            watch.register(each, select.POLLIN)
        return [fd for fd, _ in watch.poll(None if timeout_s is None else timeout_s * 1000)]

    def writable(fd: int, timeout_s: float) -> bool:
        """Whether it can be written to within so long; an error is for the write to find out."""
        watch = select.poll()
        watch.register(fd, select.POLLOUT)
        return bool(watch.poll(timeout_s * 1000))

    def is_abandoned(fd: int, timeout_s: float = 0.0) -> bool:
        """Waits; True once nobody reads that pipe any more. Where that is not told, the next write finds out."""
        watch = select.poll()
        watch.register(fd, 0)  # errors are told unasked
        return any(what & select.POLLERR for _, what in watch.poll(timeout_s * 1000))
