"""Time that passes when a test says so."""

from __future__ import annotations

from ..core.machine import SECOND

NEW_YEAR_2026 = 1_767_225_600 * SECOND


class FakeClock:
    """Calls answer microseconds since the epoch; nothing moves by itself."""

    def __init__(self, now: int = NEW_YEAR_2026) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
