"""Windows, for clients: sockets instead of pipes, the process table by psutil. Not run on one by those who wrote it."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time

import psutil


class SocketPair:
    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def fileno(self) -> int:
        return self._read.fileno()

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of rings
            self._write.send(b"!")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._read.recv(4096)) == 4096:
                pass

    def close(self) -> None:
        self._read.close()
        self._write.close()


class Process:
    """It can be signalled, which ends it; nothing tells of its end by itself."""

    def __init__(self, pid: int) -> None:
        self._pid, self._ticks = pid, started(pid)
        if self._ticks is None:
            raise ProcessLookupError(f"no process {pid}")

    def fileno(self) -> int:
        raise OSError("Windows has no descriptor for a process")

    def send(self, number: int) -> None:
        if started(self._pid) != self._ticks:
            raise ProcessLookupError(f"process {self._pid} is gone")
        os.kill(self._pid, number)

    def close(self) -> None:
        pass


def started(pid: int) -> int | None:
    try:
        return round(float(psutil.Process(pid).create_time()) * 100)
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from None


class Windows:
    wake_up = SocketPair
    handle = Process

    def ticks(self, pid: int) -> int | None:
        return started(pid)

    def boot(self) -> str:
        return f"{socket.gethostname()}:{platform.release()}"

    def boot_s(self) -> float:
        return time.monotonic()
