"""Linux: eventfd, memfd, pidfd, sequenced packets, subreapers and /proc."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time

assert sys.platform == "linux"  # for type checkers: they read no further elsewhere

PR_SET_CHILD_SUBREAPER = 36
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15


class EventFd:
    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def ring(self) -> None:
        os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class PidFd:
    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    def fileno(self) -> int:
        return self._fd

    def send(self, number: int) -> None:
        signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        if self._fd != -1:
            os.close(self._fd)
            self._fd = -1


class Linux:
    wake_up = EventFd
    handle = PidFd

    def ticks(self, pid: int) -> int | None:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                fields = stat.read().rpartition(b") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # A process whose first thread has ended looks like a zombie, while its other threads go on.
        is_gone = fields[0] == b"X" or (fields[0] == b"Z" and int(fields[17]) <= 1)
        return None if is_gone else int(fields[19])

    def boot(self) -> str:
        """This boot of this machine, this pid namespace."""
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                boot_id = file.read().strip()
            return f"{boot_id[:13]}:{os.stat('/proc/self/ns/pid').st_ino}"
        except OSError:
            return f"{socket.gethostname()}:{os.uname().release}"

    def boot_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def nameless_file(self, what: str, directory: str | None = None) -> int:
        if directory is not None:
            with contextlib.suppress(OSError):  # no such directory any more, or a file system without nameless files
                return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        return os.memfd_create(what, os.MFD_CLOEXEC)

    def framed_pair(self) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def bell_pipe(self) -> tuple[int, int]:
        return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def adopt_orphans(self) -> None:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)

    def die_with_parent(self) -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def die_with(self, lifeline: int) -> None:
        import fcntl

        # Asynchronous notice belongs to an open file: through /proc this process gets one of its own on the same pipe.
        own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        if select.select([own], [], [], 0)[0]:  # it was closed before we asked
            os._exit(0)

    def set_name(self, name: str) -> None:
        _prctl(PR_SET_NAME, name.encode())

    def has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def children(self, pid: int) -> list[int]:
        found: list[int] = []
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as listed:
                    found += map(int, listed.read().split())
        except OSError:
            pass
        return found


def _prctl(option: int, value: int | bytes) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
