"""Claims that are handed out piece by piece while the next turn is under way."""

from __future__ import annotations

import pytest

from covey.core.model import Claim
from covey.pool.landing import PIECE, Landing


@pytest.fixture
def placed() -> list[int]:
    return []


@pytest.fixture
def landing(placed: list[int]) -> Landing:
    return Landing(lambda claims: placed.extend(claim.id for claim in claims))


def claims(first: int, count: int) -> list[Claim]:
    rest = (1, "task", "sync", 1, 1, None, "default", None, None, 0, 0, None)
    return [Claim(id, *rest) for id in range(first, first + count)]  # type: ignore[arg-type]


def test_they_go_out_piece_by_piece_in_their_order(landing: Landing, placed: list[int]) -> None:
    landing.put(claims(1, PIECE + 3), at_once=False)
    assert landing
    assert placed == []
    assert landing.hand_out()
    assert placed == list(range(1, PIECE + 1))
    assert landing.hand_out()
    assert placed == list(range(1, PIECE + 4))
    assert not landing
    assert not landing.hand_out()


@pytest.mark.parametrize("at_once", [False, True])
def test_the_next_ones_never_overtake_them(landing: Landing, placed: list[int], at_once: bool) -> None:
    landing.put(claims(1, 60), at_once=False)
    landing.hand_out()
    landing.put(claims(61, 5), at_once=at_once)
    landing.clear()
    assert placed == list(range(1, 66))
    assert not landing


def test_what_is_dropped_reaches_nobody(landing: Landing, placed: list[int]) -> None:
    landing.put(claims(1, 5), at_once=False)
    landing.drop()
    landing.clear()
    assert not landing.hand_out()
    assert placed == []
