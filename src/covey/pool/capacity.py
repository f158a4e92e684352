"""How many jobs a pool holds ahead: about 20 ms of work per worker, none where jobs take longer."""

from __future__ import annotations

AHEAD_S = 0.020
MOST_AHEAD = {"sync": 500, "command": 4}  # a command costs a millisecond to start: a few hide the commit
OVERLAPPING = {"sync": 1000}
WEIGHT = 0.2


class Prefetch:
    """Moving averages of run times: per task, and over all tasks of a kind."""

    def __init__(self, fitting: int) -> None:
        self._fitting, self._most = fitting, MOST_AHEAD
        self._tasks: dict[str, float] = {}
        self._kinds: dict[str, float] = {}

    def overlap(self, overlaps: bool) -> None:
        """If so, half of the tasks run while a server works on the others; else that gains nothing (measured)."""
        self._most = MOST_AHEAD | (OVERLAPPING if overlaps else {})

    def note(self, kind: str, task: str, seconds: float) -> None:
        before = self._tasks.get(task, seconds)
        self._tasks[task] = before + WEIGHT * (seconds - before)
        before = self._kinds.get(kind, seconds)
        self._kinds[kind] = before + WEIGHT * (seconds - before)

    def note_at_least(self, kind: str, task: str, seconds: float) -> None:
        """It has run for that long and is not done: waiting for its end to learn would be too late."""
        for averages, name in ((self._tasks, task), (self._kinds, kind)):
            if seconds > averages.get(name, 0.0):
                averages[name] = seconds

    def is_short(self, task: str) -> bool:
        """Whether another job may be put behind one of these."""
        return self._tasks.get(task, AHEAD_S) < AHEAD_S

    def ahead(self, kind: str) -> int:
        """How many jobs one worker of that kind may have, the running one included."""
        return self._jobs(kind, self._kinds.get(kind))

    def of(self, kind: str, task: str) -> int:
        return self._jobs(kind, self._tasks.get(task))

    def _jobs(self, kind: str, average: float | None) -> int:
        if average is None or average >= AHEAD_S:
            return 1
        return min(self._most.get(kind, 1), self._fitting, max(1, int(AHEAD_S / max(average, 1e-6))))
