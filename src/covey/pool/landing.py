"""Claims that have arrived and are handed out while the store is already busy with the next turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..core.model import Claim

COLLECT_S = 0.002  # once all are handed out: between two looks at what workers have sent
PIECE = 25  # about a quarter of a millisecond: so long an answer may wait for us


class Landing:
    """In the order of their arrival, piece by piece. None of them stays for longer than that one turn."""

    def __init__(self, place: Callable[[Iterable[Claim]], None]) -> None:
        self._place = place
        self._claims: list[Claim] = []  # the next one last

    def __bool__(self) -> bool:
        return bool(self._claims)

    def put(self, claims: list[Claim], *, at_once: bool) -> None:
        """They are handed out piece by piece, or now; what was here before them is with the workers."""
        self.clear()
        if at_once:
            self._place(claims)
        else:
            self._claims = claims[::-1]

    def hand_out(self) -> bool:
        """The next few are with the workers. False if there was none."""
        if not self._claims:
            return False
        self._some(PIECE)
        return True

    def clear(self) -> None:
        """All of them are with the workers."""
        self._some(len(self._claims))

    def drop(self) -> None:
        """They are not ours any more."""
        self._claims = []

    def _some(self, count: int) -> None:
        if self._claims:
            next_ones, self._claims = self._claims[-count:], self._claims[:-count]
            self._place(reversed(next_ones))
