"""What systems do differently, behind one small protocol. Nobody else names a call that only one of them has."""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from typing import NoReturn, Protocol, cast

from ..errors import InvalidInput

NO_POOLS = (
    "workers run on Linux only: on Windows in WSL2, on a Mac in a container or a virtual machine, or on a server; this "
    "machine can use their queue through `covey server`, PostgreSQL, or the file itself"
)


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
    """What everybody needs."""

    def wake_up(self) -> WakeUp: ...

    def handle(self, pid: int) -> Handle:
        """OSError if there is no such process, or no descriptor for it."""

    def ticks(self, pid: int) -> int | None:
        """When it started: with the pid, its identity. None if it is gone or a zombie; OSError if it cannot be told."""

    def boot(self) -> str:
        """The space in which a pid means something."""

    def boot_s(self) -> float:
        """Seconds, counting those that the machine was suspended."""


class PoolCalls(Protocol):
    """What a pool and its processes need beside that."""

    def nameless_file(self, what: str, directory: str | None = None) -> int:
        """A file that nobody can open by name: on the directory's disk, else in memory."""

    def framed_pair(self) -> tuple[socket.socket, socket.socket]:
        """Ends that keep messages apart: whoever receives one has it whole, and nobody else has."""

    def bell_pipe(self) -> tuple[int, int]:
        """For signals: neither end waits."""

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

    def has_children(self) -> bool:
        """Whether this process has a child left, if only a zombie."""


class NoPools:
    """Where no pool can run: whatever asks for what one needs is refused in one line."""

    def __getattr__(self, name: str) -> NoReturn:
        raise InvalidInput(NO_POOLS)


@cache
def way() -> str:
    """How the system is asked: linux, posix, darwin or windows. COVEY_SYSTEM=posix asks Linux as any Unix is asked."""
    asked = os.environ.get("COVEY_SYSTEM", "")
    if asked not in ("", "posix", "linux"):
        raise InvalidInput(f"COVEY_SYSTEM={asked}: posix, or nothing")
    if sys.platform == "linux":
        return asked or "linux"
    return {"win32": "windows", "darwin": "darwin"}.get(sys.platform, "posix")


def refuse_pools() -> None:
    """InvalidInput where no pool can run."""
    if isinstance(pool_calls, NoPools):
        raise InvalidInput(NO_POOLS)


def _chosen() -> tuple[Calls, PoolCalls]:
    if sys.platform == "linux" and way() == "linux":
        from .linux import Linux

        linux = Linux()
        return linux, linux
    no_pools = cast("PoolCalls", NoPools())
    if sys.platform == "win32":
        from .windows import Windows

        return Windows(), no_pools
    else:  # noqa: RET505 - type checkers read this elsewhere only
        from .posix import Posix

        return Posix(), no_pools


calls, pool_calls = _chosen()
