"""The fair write lock beside a SQLite file.

SQLite's own busy handler sleeps and retries, and starves: with several writers one takes nearly all. So every write
transaction first passes this gate: two one-byte kernel locks on a side file. A writer waits *in the door* for the
room; whoever has just left the room must queue at the door again, so nobody can barge past a waiter.

fcntl locks, because a forked child does not inherit them and F_GETLK names the holder. They belong to the process,
so all stores of one process share one Gate per file, with an ordinary lock between threads.
"""

from __future__ import annotations

import os
import threading
import time

from ...errors import Busy
from ...system import locks
from ...system.process import described

DOOR, ROOM = 0, 1

_gates: dict[str, Gate] = {}
_gates_lock = threading.Lock()


class Gate:
    @staticmethod
    def of(path: str) -> Gate:
        """The one gate of this process for that file. A forked child gets its own."""
        key = f"{os.getpid()}:{os.path.realpath(path)}"
        with _gates_lock:
            if key not in _gates or not _gates[key]._is_at(path):
                _gates[key] = Gate(path)
            return _gates[key]

    def __init__(self, path: str) -> None:
        # Never closed: closing any descriptor of a file drops all of the process's fcntl locks on it.
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._threads = threading.Lock()
        self._waiter: _Waiter | None = None

    def _is_at(self, path: str) -> bool:
        """False once the file was deleted or made anew: others now lock another one."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(path))
        except OSError:
            return False

    def enter(self, timeout_s: float) -> None:
        """This thread is the only writer; Busy, naming who is not letting us in, after the time-out."""
        deadline = time.monotonic() + timeout_s
        if not self._threads.acquire(timeout=timeout_s):
            raise Busy(f"another thread of this process has held the write lock for {timeout_s:g} s", os.getpid())
        try:
            # An abandoned wait may still come true in its thread, and the lock is the process's: leave it to that one.
            if (self._waiter and self._waiter.busy()) or not self._try():
                self._wait(deadline, timeout_s)
        except BaseException:
            self._threads.release()
            raise

    def leave(self) -> None:
        locks.unlock(self._fd, DOOR, 2)
        self._threads.release()

    def holder(self) -> int | None:
        """The pid in the room, if it is another process."""
        return locks.holder(self._fd, ROOM)

    def _try(self) -> bool:
        if not locks.try_lock(self._fd, DOOR, 2):
            return False
        locks.unlock(self._fd, DOOR, 1)
        return True

    def _wait(self, deadline: float, timeout_s: float) -> None:
        if self._waiter is None:
            self._waiter = _Waiter(self._fd)
        if not self._waiter.wait(deadline - time.monotonic()):
            pid = self.holder()
            who = f"pid {pid} ({described(pid)})" if pid else "another process"
            raise Busy(f"{who} has held the write lock of the queue for {timeout_s:g} s; resume or end it", pid)


class _Waiter:
    """A thread that blocks in the kernel, so that the caller can give up at a deadline."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._asked = threading.Semaphore(0)
        self._inside = threading.Semaphore(0)
        self._wanted = False
        self._busy = False
        threading.Thread(target=self._run, name="covey-gate", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        with self._lock:
            self._wanted = True
            if not self._busy:
                self._busy = True
                self._asked.release()
        if self._inside.acquire(timeout=max(0.0, timeout_s)):
            return True
        with self._lock:
            self._wanted = False
            return self._inside.acquire(blocking=False)  # it came in the very last moment

    def busy(self) -> bool:
        with self._lock:
            return self._busy

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            locks.lock(self._fd, DOOR)
            locks.lock(self._fd, ROOM)
            locks.unlock(self._fd, DOOR, 1)
            with self._lock:
                self._busy = False
                if self._wanted:
                    self._wanted = False
                    self._inside.release()
                else:
                    locks.unlock(self._fd, DOOR, 2)
