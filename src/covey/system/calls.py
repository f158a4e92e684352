"""What systems do differently, behind one small protocol. Nobody else names a call that only one of them has."""

from __future__ import annotations

import socket
import sys
from typing import Protocol


class WakeUp(Protocol):
    """Wakes a thread that polls it; rung many times before that, it wakes once."""

    def fileno(self) -> int: ...

    def ring(self) -> None: ...

    def drain(self) -> None: ...

    def close(self) -> None: ...


class Handle(Protocol):
    """One process, and never another one that has its pid later. It can be read once the process has ended."""

    def fileno(self) -> int: ...

    def send(self, number: int) -> None:
        """ProcessLookupError if it is gone."""

    def close(self) -> None: ...


class Calls(Protocol):
    def wake_up(self) -> WakeUp: ...

    def handle(self, pid: int) -> Handle:
        """OSError if there is no such process, or no descriptor for it."""

    def ticks(self, pid: int) -> int | None:
        """When it started: with the pid, its identity. None if it is gone or a zombie; OSError if it cannot be told."""

    def boot(self) -> str:
        """The space in which a pid means something."""

    def boot_s(self) -> float:
        """Seconds, counting those that the machine was suspended."""

    def nameless_file(self, what: str, directory: str | None = None) -> int:
        """A file that nobody can open by name: on the directory's disk, else in memory."""

    def framed_pair(self) -> tuple[socket.socket, socket.socket]:
        """Ends that keep messages apart: whoever receives one has it whole, and nobody else has."""

    def adopt_orphans(self) -> None:
        """Orphans among this process's descendants become its children: nothing escapes by forking twice."""

    def die_with_parent(self) -> None:
        """This process gets TERM when the thread that started it ends, also by kill -9."""

    def die_with(self, lifeline: int) -> None:
        """This process is killed when the other end of the pipe is closed, whatever it is doing then."""

    def set_name(self, name: str) -> None:
        """What `ps` and `top` show for this process, where that can be said."""

    def children(self, pid: int) -> list[int]:
        """Its direct children, zombies included."""


def _chosen() -> Calls:
    if sys.platform == "linux":
        from .linux import Linux

        return Linux()
    raise NotImplementedError(f"Covey does not run on {sys.platform} yet")


calls = _chosen()
