"""Single processes: whether the one lives without which we shall not, and the signals that this one gets."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from ..env import read_ticks
from ..errors import InvalidInput

PARENT_S = 5.0  # between two looks, where nothing tells that it is gone


class Watcher(Protocol):
    """Calls back when a descriptor can be read."""

    def watch(self, file: int, act: Callable[[object], None]) -> None: ...

    def unwatch(self, file: int) -> None: ...


class Parent:
    """The process without which a pool shall not live: `--parent-pid`."""

    def __init__(self, pid: int) -> None:
        ticks = read_ticks(pid)
        if ticks is None:
            raise InvalidInput(f"--parent-pid {pid}: no such process")
        self.pid, self._ticks = pid, ticks
        self.at = time.monotonic() + PARENT_S  # when to look next

    def is_gone(self) -> bool:
        """Only if that is certain: its pid may be another's by now, and what cannot be read is taken for alive."""
        try:
            return read_ticks(self.pid) != self._ticks
        except OSError:
            return False

    def has_left(self, now: float) -> bool:
        """It is time to look, and it is gone."""
        if now < self.at:
            return False
        self.at = now + PARENT_S
        return self.is_gone()

    def listen(self, host: Watcher) -> None:
        """The host hears at once when it is gone, where the system tells: then it is time to look."""
        self.at = time.monotonic()  # it may have gone before anybody listened
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:  # there is no such thing, or it is gone already
            return

        def hear(_: object) -> None:
            host.unwatch(handle)
            os.close(handle)
            self.at = time.monotonic()

        host.watch(handle, hear)


@contextlib.contextmanager
def signal_pipe() -> Iterator[int]:
    """INT and TERM arrive as bytes on a descriptor; no Python runs in a handler."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    previous = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(previous)
        for number, action in before.items():
            signal.signal(number, action)
        os.close(read)
        os.close(write)
