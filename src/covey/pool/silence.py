"""Whether a zygote is frozen: it owes an answer and says nothing.

Nothing is asked for the asking's sake, so that an idle pool and its zygote sleep. Silence is counted in looks of ours,
a second apart, not in seconds: a pool that was itself suspended, with its whole machine or by hand, comes back to
one look, and not to a zygote that seems to have said nothing for hours.
"""

from __future__ import annotations

LOOK_S = 1.0
FROZEN = 5  # looks; one answer takes two seconds at the worst, if the zygote has to end what a worker left
LOADING = 60  # while it imports the app


class Silence:
    def __init__(self) -> None:
        self._owed: set[str] = set()  # workers of whose start or end it has to tell
        self._looks = 0
        self._loads = False
        self.at: float | None = None  # when to look again

    def begin(self, *, loads: bool) -> None:
        """Another zygote, which owes nothing yet; perhaps it imports the app first."""
        self._owed.clear()
        self._looks, self._loads, self.at = 0, loads, None

    def owes(self, worker: str, now: float) -> None:
        self._owed.add(worker)
        self.at = self.at or now + LOOK_S

    def heard(self, worker: str | None) -> None:
        """It said something, perhaps what it owed."""
        self._looks, self._loads = 0, False
        self._owed.discard(worker or "")
        if not self._owed:
            self.at = None

    def look(self, now: float) -> bool:
        """Whether it has been silent for too long. If nothing is done about it, it has as long again."""
        if self.at is None or now < self.at:
            return False
        self.at = now + LOOK_S
        self._looks += 1
        if self._looks < (LOADING if self._loads else FROZEN):
            return False
        self._looks = 0
        return True
