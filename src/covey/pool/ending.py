"""How a pool ends: what a signal means, until when its jobs may run on, when nobody waits for the queue. No clock."""

from __future__ import annotations

import signal
from collections.abc import Iterable

GIVE_UP_S = 10.0  # after the last job was killed: how long the store may take to hear of it


class Ending:
    """INT: what runs may finish. TERM, HUP: within the grace. A second signal: at once."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._signals = 0
        self.begun = False  # nothing is claimed any more
        self.kill_at: float | None = None  # when what still runs is killed; None: it may finish
        self.killed_at: float | None = None

    def hear(self, numbers: Iterable[int], now: float) -> bool:
        """These signals have come. True: the pool has to stop claiming, and has not begun to."""
        before = self.begun
        for number in numbers:
            if number not in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                continue
            self._signals += 1
            if self._signals > 1:  # only signals count: `worker stop` asks through the store and signals as well
                self.kill_at = now
            else:
                self.begin(None if number == signal.SIGINT else now + self._grace_s)
        return self.begun and not before

    def begin(self, kill_at: float | None) -> None:
        self.begun, self.kill_at = True, kill_at

    def lose_parent(self, now: float) -> bool:
        """Without its parent the pool ends within its grace; False if it ends as soon as that already."""
        if self.kill_at is not None or self.killed_at is not None:
            return False
        self.begin(now + self._grace_s)
        return True

    def must_kill(self, now: float) -> bool:
        """Time is up. Said once."""
        if not self.kill_at or now < self.kill_at:
            return False
        self.kill_at, self.killed_at = None, now
        return True

    def is_overdue(self, now: float) -> bool:
        """The queue has had long enough to hear of what was killed."""
        return self.killed_at is not None and now > self.killed_at + GIVE_UP_S
