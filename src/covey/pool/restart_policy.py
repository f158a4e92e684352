"""Who dies is replaced: at once, the later the more often it dies young, and not at all if it cannot even start.

The same for workers and for containers. Who is alike is one group: a worker type and kind, a type's containers.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

from ..log import Log

GIVE_UP = 8  # lives in a row too short to do a single job, the last without having been ready: the group cannot start


class RestartPolicy:
    """How soon another one is started in the place of one that has died. No clock of its own."""

    def __init__(self, *, short_life_s: float, backoff_s: tuple[float, float]) -> None:
        self._short_life_s, (self._first_s, self._longest_s) = short_life_s, backoff_s
        self._short_lives: dict[Hashable, int] = {}

    def replace_after(
        self, group: Hashable, lived_s: float, *, was_ready: bool, did_jobs: bool = False
    ) -> float | None:
        """Seconds until another one is started; None: never again.

        A start may take long to fail; it is a short life all the same.
        """
        is_short = not was_ready or (lived_s < self._short_life_s and not did_jobs)
        lives = self._short_lives[group] = self._short_lives.get(group, 0) + 1 if is_short else 0
        if lives >= GIVE_UP and not was_ready:
            return None
        if lives < 2:
            return 0.0
        return min(self._first_s * 2.0 ** min(lives - 2, 64), self._longest_s)


class StartUp:
    """Those that a pool starts with: how their start went is said once, when each of them is there or has failed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._asked = self._outstanding = 0
        self._failures: list[str] = []
        self._began = time.monotonic()
        self.nobody = False  # not one of them could: there is nothing to go on for

    def ask(self, count: int) -> None:
        """So many more are on their way."""
        self._asked += count
        self._outstanding += count

    def succeeded(self, name: str, ready: int) -> None:
        """``ready``: how many are there now."""
        self._log.worker_started(name, ready, self._asked)
        self._one_less(ready)

    def failed(self, name: str, why: str, ready: int) -> None:
        self._failures.append(f"{name} ({why})")
        self._one_less(ready)

    def _one_less(self, ready: int) -> None:
        self._outstanding -= 1
        if self._outstanding == 0:
            self.nobody = not ready
            self._log.all_started(ready, self._asked, time.monotonic() - self._began, self._failures)
