"""Which kind of victim is next: in the order of the seed, and none is passed over without a word."""

from __future__ import annotations

from collections import Counter

from tools.torture.deck import PATIENCE_S, Deck

KINDS = {"pool": 3, "worker": 6, "client": 2, "pause": 1}


class Hand:
    """A deck that is played from, by a clock that moves when told; ``away``: kinds that nobody can be found of."""

    def __init__(self, seed: int = 1) -> None:
        self.deck, self.now = Deck(KINDS, seed), 0.0
        self.away: set[str] = set()
        self.log: list[str] = []

    def strike(self) -> None:
        card = self.deck.card(self.now)
        if card in self.away:
            self.now += 0.5
        else:
            self.log.append(card)
            self.deck.played()

    def play(self, count: int) -> list[str]:
        while len(self.log) < count:
            self.strike()
        return self.log


def test_the_same_seed_deals_the_same_cards_and_a_deal_has_every_card() -> None:
    one, other = Hand(), Hand()
    assert one.play(24) == other.play(24)
    assert Counter(one.log[:12]) == Counter(one.log[12:]) == Counter(KINDS)
    assert one.deck.never_played() == {}


def test_a_card_that_nobody_is_there_for_comes_again_after_one_other() -> None:
    usual = Hand().play(12)
    late = usual.index("pause")
    hand = Hand()
    hand.play(late)
    hand.away = {"pause"}
    hand.play(late + 1)
    hand.away = set()
    hand.play(12)
    assert hand.log[late + 1] == "pause"
    assert Counter(hand.log) == Counter(KINDS)


def test_two_that_are_away_do_not_keep_the_others_from_their_turn() -> None:
    hand = Hand()
    hand.away = {"pause", "pool"}
    assert Counter(hand.play(8)) == {"worker": 6, "client": 2}
    hand.away = set()
    assert Counter(hand.play(12)) == Counter(KINDS)
    assert hand.deck.never_played() == {}


def test_what_was_never_played_is_told() -> None:
    hand = Hand()
    hand.away = {"pause"}
    hand.play(11)
    assert hand.deck.never_played() == {"pause": 1}


def test_a_kind_of_which_nobody_will_come_any_more_is_given_up_at_once_and_told() -> None:
    hand = Hand()
    while hand.deck.card(hand.now) != "client":
        hand.strike()
    hand.deck.give_up()
    assert hand.now == 0.0
    hand.play(11)
    assert Counter(hand.log)["client"] == 1
    assert hand.deck.never_played() == {"client": 1}


def test_a_card_that_comes_again_waits_longer() -> None:
    hand = Hand()
    hand.away = set(KINDS)
    first = hand.deck.card(0.0)
    assert hand.deck.card(PATIENCE_S[0]) == first
    assert hand.deck.card(PATIENCE_S[0] + 0.1) != first
    hand.deck.played()
    again = PATIENCE_S[0] + 0.1
    assert hand.deck.card(again) == first
    assert hand.deck.card(again + PATIENCE_S[1]) == first
