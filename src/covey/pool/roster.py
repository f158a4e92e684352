"""The workers as people see them: on their way to the store with every beat, and soon after a change that lasts."""

from __future__ import annotations

import time

from ..core.model import WorkerState
from .crew import Crew

SOON_S = 0.5
BEAT_S = 5.0


class Roster:
    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._soon_at = 0.0
        self._beat_at = 0.0
        self._due = False  # something happened since it was last shown
        self._key: object = None
        self._coming = False

    def wake_at(self, now: float) -> float:
        """When there may be something to show."""
        return self._soon_at if self._due else max(self._beat_at, now + 0.05)

    def news(self, now: float) -> list[WorkerState] | None:
        """Everybody's state, if it is time or if it has changed."""
        coming = self._crew.coming()
        beat = now >= self._beat_at or (self._coming and not coming)  # everybody is there: worth a look at once
        self._coming = coming
        self._due = not beat and now < self._soon_at
        if self._due:
            return None
        now_ns, wall = time.monotonic_ns(), time.time_ns() // 1000
        roster = self._crew.views(now_ns, wall, memory=True)
        key = [(worker.name, worker.state, worker.job_id, worker.pid) for worker in roster]
        self._soon_at = now + SOON_S
        if not beat and key == self._key:
            return None
        self._key = key
        if beat:
            self._beat_at = now + BEAT_S
        return roster
