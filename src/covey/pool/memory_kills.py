"""Whether a process that was killed was killed for lack of memory: the kernel counts such kills per control group.

The count does not say who it was. So a kill is put down to a kills only if the count has risen within the last
seconds, and each rise explains one kill.
"""

from __future__ import annotations

import signal
import time

from ..core.model import Report
from ..system import cgroup

PERIOD_S = 1.0
SAYS = "out of memory"
KILLED = 128 + signal.SIGKILL  # the exit code of a command whose process was killed, its shell included


class MemoryKills:
    def __init__(self, path: str | None) -> None:
        self._path = path
        self._before = self._latest = self._count()
        self._looked_at = time.monotonic()

    def look(self, now: float) -> None:
        """Kills of long ago explain nothing any more. Two looks are kept: a kill may be counted before it is told."""
        if self._path and now - self._looked_at >= PERIOD_S:
            self._before, self._latest, self._looked_at = self._latest, self._count(), now

    def explains(self) -> bool:
        """Somebody was killed for lack of memory just now, and nothing else has been put down to it yet."""
        if self._path is None or self._count() <= self._before:
            return False
        self._before += 1
        self._latest = max(self._latest, self._before)
        return True

    def of_worker(self, how: str) -> str:
        """How a worker ended, with the reason."""
        return f"{how}: {SAYS}" if how.endswith("SIGKILL") and self.explains() else how

    def of_command(self, report: Report) -> None:
        """The report of a command that was killed says the reason."""
        if report.outcome == "failure" and report.exit_code == KILLED and self.explains():
            report.error = f"{report.error}: {SAYS}"

    def _count(self) -> int:
        return cgroup.killed_for_memory(self._path) if self._path else 0
