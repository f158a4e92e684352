"""The workers as people see them: on their way to the store with every beat, and within half a second of a change.

A pool that works has something to write anyway: then they travel with it, at most twice a second. One that is idle has
nothing to show.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.turn import WorkerState
from .workers import Workers

SOON_S = 0.5
BEAT_S = 5.0


class Roster:
    def __init__(self, workers: Workers, show: Callable[..., None]) -> None:
        self._workers, self._show = workers, show
        self._soon_at = 0.0
        self._beat_at = 0.0
        self._due = False  # something happened since it was last shown
        self._key: object = None
        self._coming = False

    def wake_at(self, now: float) -> float:
        """When there may be something to show."""
        return self._soon_at if self._due else max(self._beat_at, now + 0.05)

    def tell(self, now: float, *, wakes: bool = True) -> None:
        """What is new to see is on its way to the store."""
        if (roster := self.news(now)) is not None:
            self._show(roster, dict(self._workers.given_up), wakes=wakes)

    def tell_with_reports(self) -> None:
        """The same for one who is about to send reports: what they change should not cost a turn of its own."""
        if (now := time.monotonic()) >= self._soon_at:
            self.tell(now, wakes=False)

    def news(self, now: float) -> list[WorkerState] | None:
        """Everybody's state, if it is time or if it has changed."""
        coming = self._workers.coming()
        beat = now >= self._beat_at or (self._coming and not coming)  # everybody is there: worth a look at once
        self._coming = coming
        self._due = not beat and now < self._soon_at
        if self._due:
            return None
        now_ns, wall = time.monotonic_ns(), time.time_ns() // 1000
        roster = self._workers.views(now_ns, wall, memory=True)
        key = [(each.name, each.state, each.job_id, each.pid, each.done, each.failed) for each in roster]
        self._soon_at = now + SOON_S
        if not beat and key == self._key:
            return None
        self._key = key
        if beat:
            self._beat_at = now + BEAT_S
        return roster
