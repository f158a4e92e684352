"""LISTEN: one connection and one thread for all ears of a process. Who is not heard is found by polling."""

from __future__ import annotations

import os
import select
import threading
import weakref

import psycopg

from ..sqlite.in_memory import QuietEar as Ear
from .url import Target

RETRY_S = (0.1, 5.0)  # after a lost connection: first and longest pause


class Ears:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._ears: weakref.WeakSet[Ear] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._end = -1  # an eventfd that ends the thread
        self.backend: int | None = None  # the pid of our session on the server, while there is one

    def listen(self, who: str) -> Ear:
        if self._target.listen is None:
            raise OSError("this queue is only polled (listen=off)")
        ear = Ear(who)
        with self._lock:
            self._ears.add(ear)
            if self._thread is None:
                self._end = os.eventfd(0, os.EFD_CLOEXEC)
                self._thread = threading.Thread(target=self._run, name="covey-listen", daemon=True)
                self._thread.start()
        return ear

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            os.eventfd_write(self._end, 1)
            thread.join()
            os.close(self._end)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        pause_s = 0.0
        while not self._ended(pause_s):
            try:
                with psycopg.connect(self._target.listen or "", autocommit=True, prepare_threshold=None) as db:
                    db.execute(f'listen "{self._target.channel}"'.encode())
                    self.backend = db.info.backend_pid
                    self._wake_all()  # listen first, then look: what was said before is found, what comes is heard
                    pause_s = 0.0
                    if self._hear(db):
                        return
            except (psycopg.Error, OSError):
                pass
            finally:
                self.backend = None
            pause_s = min(max(pause_s * 2, RETRY_S[0]), RETRY_S[1])

    def _ended(self, timeout_s: float) -> bool:
        return self._end in _readable([self._end], timeout_s)

    def _hear(self, db: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Until we are told to end (True) or the connection is lost."""
        while True:
            if self._end in _readable([db.fileno(), self._end]):
                return True
            db.pgconn.consume_input()
            said = set()
            while notice := db.pgconn.notifies():
                said.add(notice.extra.decode(errors="replace"))
            for ear in self._all():
                if ear.who in said:
                    ear.wake()

    def _wake_all(self) -> None:
        for ear in self._all():
            ear.wake()

    def _all(self) -> list[Ear]:
        with self._lock:
            return list(self._ears)


def _readable(fds: list[int], timeout_s: float | None = None) -> list[int]:
    """By poll: select knows no descriptor above 1,023, and a pool of many workers has those."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)]
