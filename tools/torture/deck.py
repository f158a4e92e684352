"""The order in which kinds of victims are struck: dealt like cards, so that who is easiest to find is not the only one.

A card that nobody can be found for is put off: one other is played, then it comes again. A run of a few strikes never
sees a second deal, so it must not wait for one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

PATIENCE_S = (2.0, 10.0)  # how long a card waits in the hand, the first time and later


class Deck:
    def __init__(self, kinds: Mapping[str, int], seed: int) -> None:
        self._kinds = kinds
        self._dice = random.Random(f"cards {seed}")
        self._cards: list[str] = []  # the next is the last
        self._again: list[str] = []  # put off, and one other has been played since: these come first
        self._later: list[str] = []  # put off just now
        self._given_up: list[str] = []
        self._hand, self._is_second, self._until = "", False, 0.0

    def card(self, now: float) -> str:
        """The card that is to be played: the one in the hand, as long as it waits, else the next."""
        if self._hand and now > self._until:
            self._later.append(self._hand)
            self._hand = ""
        if not self._hand:
            self._is_second = bool(self._again)
            self._hand = self._again.pop(0) if self._again else self._next()
            self._until = now + PATIENCE_S[self._is_second]
        return self._hand

    def played(self) -> None:
        """The card in the hand has found somebody."""
        self._again += self._later
        self._later, self._hand = [], ""

    def give_up(self) -> None:
        """Nobody of that kind will come any more."""
        self._given_up.append(self._hand)
        self._hand = ""

    def never_played(self) -> Counter[str]:
        """Cards that waited for somebody, and nobody came."""
        in_hand = [self._hand] if self._hand and self._is_second else []
        return Counter(self._given_up + self._again + self._later + in_hand)

    def _next(self) -> str:
        if not self._cards:
            self._cards = [kind for kind, count in self._kinds.items() for _ in range(count)]
            self._dice.shuffle(self._cards)
            self._cards += reversed(self._later)
            self._later = []
        return self._cards.pop()
