"""What a pool looks at now and then: whether its parent lives, and which workers have grown too large."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

from ..env import read_ticks
from ..errors import InvalidInput
from .worker_process import WorkerProcess
from .workers import Workers

PARENT_S = 5.0  # where nothing tells that it is gone
MEMORY_S = 1.0


class Parent:
    """The process without which a pool shall not live."""

    def __init__(self, pid: int) -> None:
        ticks = read_ticks(pid)
        if ticks is None:
            raise InvalidInput(f"--parent-pid {pid}: no such process")
        self.pid, self._ticks = pid, ticks

    def is_gone(self) -> bool:
        """Only if that is certain: its pid may be another's by now, and what cannot be read is taken for alive."""
        try:
            return read_ticks(self.pid) != self._ticks
        except OSError:
            return False

    def handle(self) -> int | None:
        """A descriptor that can be read once it is gone; None where there is no such thing, or it is gone already."""
        try:
            return os.pidfd_open(self.pid)
        except OSError:
            return None


class Watcher(Protocol):
    def watch(self, file: int, act: Callable[[object], None]) -> None: ...

    def unwatch(self, file: int) -> None: ...


class Care:
    def __init__(self, workers: Workers, parent: Parent | None, *, max_memory: int | None) -> None:
        self._workers, self._parent, self._max_memory = workers, parent, max_memory
        self._parent_at = time.monotonic() + PARENT_S
        self._memory_at = time.monotonic() + MEMORY_S

    @property
    def at(self) -> float | None:
        """When to look next."""
        times = [at for at, wanted in ((self._parent_at, self._parent), (self._memory_at, self._max_memory)) if wanted]
        return min(times, default=None)

    def listen(self, host: Watcher) -> None:
        """The host hears at once when the parent is gone: then it is time to look."""
        if self._parent is None:
            return
        self._parent_at = time.monotonic()  # it may have gone before anybody listened
        if (handle := self._parent.handle()) is None:
            return

        def hear(_: object) -> None:
            host.unwatch(handle)
            os.close(handle)
            self._parent_at = time.monotonic()

        host.watch(handle, hear)

    def is_orphan(self) -> bool:
        now = time.monotonic()
        if self._parent is None or now < self._parent_at:
            return False
        self._parent_at = now + PARENT_S
        return self._parent.is_gone()

    def outgrown(self, now: float) -> list[WorkerProcess]:
        """Workers above the limit: from now on they get nothing more, and end after what they run."""
        if self._max_memory is None or now < self._memory_at:
            return []
        self._memory_at = now + MEMORY_S
        found = [m for m in self._workers.by_name.values() if m.ready and (m.memory() or 0) > self._max_memory]
        for worker in found:
            worker.retire(f"its memory was above {self._max_memory >> 20} MiB")
        return found
