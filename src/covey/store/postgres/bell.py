"""LISTEN: one connection and one thread for all ears of a process. Who is not heard is found by polling."""

from __future__ import annotations

import threading
import weakref

import psycopg

from ...system.calls import WakeUp, calls
from ...system.waiting import readable
from ..sqlite.in_memory import QuietEar as Ear
from .url import Target

RETRY_S = (0.1, 5.0)  # after a lost connection: first and longest pause


class Ears:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._ears: weakref.WeakSet[Ear] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._end: WakeUp | None = None  # ends the thread
        self.backend: int | None = None  # the pid of our session on the server, while there is one

    def listen(self, who: str) -> Ear:
        if self._target.listen is None:
            raise OSError("this queue is only polled (listen=off)")
        ear = Ear(who)
        with self._lock:
            self._ears.add(ear)
            if self._thread is None:
                self._end = calls.wake_up()
                self._thread = threading.Thread(target=self._run, name="covey-listen", daemon=True)
                self._thread.start()
        return ear

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and self._end is not None:
            self._end.ring()
            thread.join()
            self._end.close()

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
        return bool(readable([self._ending()], timeout_s))

    def _ending(self) -> int:
        assert self._end is not None
        return self._end.fileno()

    def _hear(self, db: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Until we are told to end (True) or the connection is lost."""
        while True:
            end = self._ending()
            if end in readable([db.fileno(), end]):
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
