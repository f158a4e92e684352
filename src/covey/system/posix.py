"""Any Unix: pipes, the process table by psutil. Clients need no more; no pool runs this way."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

import psutil

if sys.platform == "win32":  # for type checkers: they read no further there
    raise ImportError("not for Windows")

LOOK_S = 0.05  # how soon the end of a process is seen


class Pipe:
    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of rings
            os.write(self._write, b"!")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._read, 4096)) == 4096:
                pass

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Watched:
    """A process that is looked at now and then. Between a look and a signal its pid might become another's: a pid is
    used again after thousands of others, so that this is the weaker way, not a wrong one."""

    def __init__(self, pid: int) -> None:
        self._pid, self._ticks = pid, started(pid)
        if self._ticks is None:
            raise ProcessLookupError(f"no process {pid}")
        self._ended: Pipe | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def fileno(self) -> int:
        if self._ended is None:
            self._ended = Pipe()
            self._thread = threading.Thread(target=self._look, name="covey-watched", daemon=True)
            self._thread.start()
        return self._ended.fileno()

    def send(self, number: int) -> None:
        if started(self._pid) != self._ticks:
            raise ProcessLookupError(f"process {self._pid} is gone")
        os.kill(self._pid, number)

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None and self._ended is not None:
            self._thread.join()
            self._ended.close()
            self._thread = self._ended = None

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            with contextlib.suppress(OSError):
                if started(self._pid) != self._ticks and self._ended is not None:
                    self._ended.ring()
                    return


def started(pid: int) -> int | None:
    """When a process began, in hundredths of a second; None if it is gone or a zombie, OSError if that is not told."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(float(process.create_time()) * 100)
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from None


class Posix:
    wake_up = Pipe
    handle = Watched

    def ticks(self, pid: int) -> int | None:
        return started(pid)

    def boot(self) -> str:
        if sys.platform == "darwin":
            from .darwin import boot_session

            if session := boot_session():
                return session
        return f"{socket.gethostname()}:{os.uname().release}"

    def boot_s(self) -> float:
        """On a Mac this clock goes on while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)
