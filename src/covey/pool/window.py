"""How many jobs a pool holds ahead: about 20 ms of work per worker, none where jobs take longer."""

from __future__ import annotations

AHEAD_S = 0.020
MOST_AHEAD = 200
WEIGHT = 0.2


class Window:
    """A moving average of run times per task, and over all tasks."""

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}
        self._overall: float | None = None

    def note(self, task: str, seconds: float) -> None:
        before = self._averages.get(task)
        self._averages[task] = seconds if before is None else before + WEIGHT * (seconds - before)
        self._overall = seconds if self._overall is None else self._overall + WEIGHT * (seconds - self._overall)

    def note_at_least(self, task: str, seconds: float) -> None:
        """It has run for that long and is not done: waiting for its end to learn would be too late."""
        if seconds > self._averages.get(task, 0.0):
            self._averages[task] = seconds
        if self._overall is not None and seconds > self._overall:
            self._overall = seconds

    def is_short(self, task: str) -> bool:
        """Whether another job may be put behind one of these."""
        return self._averages.get(task, AHEAD_S) < AHEAD_S

    def ahead(self) -> int:
        """How many jobs one worker may have, the running one included."""
        return self._for(self._overall)

    def of(self, task: str) -> int:
        return self._for(self._averages.get(task))

    @staticmethod
    def _for(average: float | None) -> int:
        if average is None or average >= AHEAD_S:
            return 1
        return min(MOST_AHEAD, max(1, int(AHEAD_S / max(average, 1e-6))))
