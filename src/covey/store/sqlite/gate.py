"""The fair write lock beside a SQLite file.

SQLite's own busy handler sleeps and retries, and starves: with several writers one takes nearly all. So every write
transaction first passes this gate: two one-byte kernel locks on a side file. A writer waits *in the door* for the
room; whoever has just left the room must queue at the door again, so nobody can barge past a waiter.

fcntl locks, because a forked child does not inherit them and F_GETLK names the holder. They belong to the process,
so all stores of one process share one Gate per file, with an ordinary lock between threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time

from ...errors import Busy

DOOR, ROOM = 0, 1
_FLOCK = "hhqqi4x"

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
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
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
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 2, DOOR)
        self._threads.release()

    def holder(self) -> int | None:
        """The pid in the room, if it is another process."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, ROOM, 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else pid

    def _try(self) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, DOOR)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, DOOR)
        return True

    def _wait(self, deadline: float, timeout_s: float) -> None:
        if self._waiter is None:
            self._waiter = _Waiter(self._fd)
        if not self._waiter.wait(deadline - time.monotonic()):
            pid = self.holder()
            who = f"pid {pid} ({_describe(pid)})" if pid else "another process"
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
            self._block(DOOR)
            self._block(ROOM)
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, DOOR)
            with self._lock:
                self._busy = False
                if self._wanted:
                    self._wanted = False
                    self._inside.release()
                else:
                    fcntl.lockf(self._fd, fcntl.LOCK_UN, 2, DOOR)

    def _block(self, byte: int) -> None:
        while True:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, byte)
                return
            except OSError as error:
                # The kernel counts locks by process: two processes that each use two queues look like a deadlock to it.
                if error.errno != errno.EDEADLK:
                    raise
                time.sleep(0.002)


def _describe(pid: int | None) -> str:
    states = {"T": "stopped", "t": "traced", "D": "waiting for the disk", "Z": "a zombie"}
    try:
        with open(f"/proc/{pid}/stat") as stat:
            name, _, rest = stat.read().partition("(")[2].rpartition(") ")
        return f"{name}, {states.get(rest[0], 'running')}"
    except OSError:
        return "gone"
