"""What a worker is doing, visible to its pool at any instant: a few words of shared memory per job place.

The worker writes `serial` before user code and clears it after the report has left, so that a dead worker's slot says
exactly which jobs had started. Aligned 8-byte stores are atomic; `serial` is written last and cleared first.
"""

from __future__ import annotations

import mmap
import os

WORDS = 4
SERIAL, SINCE, STOP, GRACE = range(WORDS)


def create(places: int) -> int:
    """A descriptor for the shared words of a worker with that many places."""
    fd = os.memfd_create("covey-slot", os.MFD_CLOEXEC)
    os.ftruncate(fd, places * WORDS * 8)
    return fd


class Slot:
    def __init__(self, fd: int, places: int) -> None:
        self._map = mmap.mmap(fd, places * WORDS * 8)
        self._words = memoryview(self._map).cast("q")
        self.places = places

    # ── the worker's side ───────────────────────────────────────────────────────────────────────────────────────────

    def start(self, place: int, serial: int, since_ns: int) -> None:
        base = place * WORDS
        self._words[base + SINCE] = since_ns
        self._words[base + SERIAL] = serial

    def clear(self, place: int) -> None:
        self._words[place * WORDS + SERIAL] = 0

    def asked_to_stop(self, place: int) -> int:
        """The serial that shall stop (0: none)."""
        return self._words[place * WORDS + STOP]

    def grace_s(self, place: int) -> float:
        return self._words[place * WORDS + GRACE] / 1000

    # ── the pool's side ─────────────────────────────────────────────────────────────────────────────────────────────

    def running(self) -> dict[int, tuple[int, int]]:
        """serial → (place, monotonic nanoseconds at its start) of everything that has started and not been reported."""
        words = self._words
        return {
            words[base]: (base // WORDS, words[base + SINCE])
            for base in range(0, self.places * WORDS, WORDS)
            if words[base]
        }

    def ask_to_stop(self, place: int, serial: int, grace_s: float) -> None:
        base = place * WORDS
        self._words[base + GRACE] = int(grace_s * 1000)
        self._words[base + STOP] = serial

    def close(self) -> None:
        self._words.release()
        self._map.close()
