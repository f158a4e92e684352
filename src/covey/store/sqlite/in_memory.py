"""The bell of a database in memory: threads of one process, woken by a condition."""

from __future__ import annotations

import threading
import weakref

_bells: dict[str, QuietBell] = {}


class QuietBell:
    @staticmethod
    def of(name: str) -> QuietBell:
        return _bells.setdefault(name, QuietBell())

    def __init__(self) -> None:
        self._ears: weakref.WeakSet[QuietEar] = weakref.WeakSet()

    def ring(self, who: str) -> None:
        for ear in list(self._ears):
            if ear.who == who:
                ear.wake()

    def listen(self, who: str) -> QuietEar:
        ear = QuietEar(who)
        self._ears.add(ear)
        return ear

    def close(self) -> None:
        pass


class QuietEar:
    """Woken by another thread of this process; also what a thread that listens elsewhere wakes (listening.py)."""

    def __init__(self, who: str) -> None:
        self.who = who
        self._event = threading.Event()

    def wait(self, timeout_s: float) -> bool:
        heard = self._event.wait(max(0.0, timeout_s))
        self._event.clear()
        return heard

    def wake(self) -> None:
        self._event.set()

    def close(self) -> None:
        self._event.set()
