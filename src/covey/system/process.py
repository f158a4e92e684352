"""Single processes: who lives, the parent without which a pool ends, the signals that come in."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..errors import InvalidInput
from .calls import calls, pool_calls

PARENT_S = 5.0  # between two looks, where nothing tells that it is gone


def boot() -> str:
    """Names the space in which a pid means something: this boot of this machine, this pid namespace."""
    return calls.boot()


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot: with the pid, its identity. None if it is gone or a zombie."""
    try:
        return calls.ticks(pid)
    except OSError:
        return None


def read_ticks(pid: int) -> int | None:
    """The same, but OSError when it cannot be told."""
    return calls.ticks(pid)


def alive(pid: int, ticks: int) -> bool:
    """True while exactly this process lives; a reused pid has other ticks."""
    return start_ticks(pid) == ticks


def send(pid: int, ticks: int, number: int) -> bool:
    """Exactly this process has the signal; False if it is gone, or is not ours to signal."""
    try:
        handle = calls.handle(pid)
    except OSError:
        return False
    try:
        if start_ticks(pid) != ticks:
            return False
        handle.send(number)
        return True
    except OSError:
        return False
    finally:
        handle.close()


def memory(pid: int) -> int | None:
    """Bytes that it takes; None if that cannot be told."""
    if sys.platform != "linux":
        return None
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def is_traced(pid: int) -> bool:
    """Whether a debugger has stopped it, or may at any moment."""
    with contextlib.suppress(OSError, StopIteration), open(f"/proc/{pid}/status") as status:
        return next(line for line in status if line.startswith("TracerPid:")).split()[1] != "0"
    return False


def command_line(pid: int) -> str | None:
    """What it was started with; None if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return None


def described(pid: int | None) -> str:
    """Its name and what it does at the moment, in words."""
    states = {"T": "stopped", "t": "traced", "D": "waiting for the disk", "Z": "a zombie"}
    try:
        with open(f"/proc/{pid}/stat") as stat:
            name, _, rest = stat.read().partition("(")[2].rpartition(") ")
        return f"{name}, {states.get(rest[0], 'running')}"
    except OSError:
        return "gone"


def user_id() -> str:
    """A word for whose process this is that no other user has."""
    if sys.platform == "win32":
        return os.environ.get("USERNAME", "user")
    return str(os.getuid())


def user_name() -> str:
    """Whose process this is; his number if the system has no name for him."""
    if sys.platform == "win32":
        return user_id()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


# What ends a command that somebody has started in a terminal.
if sys.platform == "win32":
    ENDING: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
    KILL = signal.SIGTERM  # what nobody can ignore
else:
    ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    KILL = signal.SIGKILL


class Watcher(Protocol):
    """Calls back when a descriptor can be read."""

    def watch(self, file: Any, act: Callable[[object], None]) -> None: ...

    def unwatch(self, file: Any) -> None: ...


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
            handle = calls.handle(self.pid)
        except OSError:  # there is no such thing, or it is gone already
            return

        def hear(_: object) -> None:
            host.unwatch(handle)
            handle.close()
            self.at = time.monotonic()

        host.watch(handle, hear)


@contextlib.contextmanager
def signal_pipe() -> Iterator[int]:
    """INT and TERM arrive as bytes on a descriptor; no Python runs in a handler."""
    read, write = pool_calls.bell_pipe()
    before = {number: signal.signal(number, lambda *_: None) for number in ENDING}
    previous = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(previous)
        for number, action in before.items():
            signal.signal(number, action)
        os.close(read)
        os.close(write)
