"""The rules about instants that a clock which was ahead has written."""

from __future__ import annotations

import pytest

from covey.core.clocks import FRESH, SLACK, age_s, is_ahead, is_awaited, is_fresh
from covey.core.machine import SECOND

NOW = 1_000_000 * SECOND


@pytest.mark.parametrize(
    ("at", "awaited"), [(NOW - 1, False), (NOW, False), (NOW + 1, True), (NOW + 30, True), (NOW + 31, False)]
)
def test_what_happens_once_a_period_is_never_further_away_than_that(at: int, awaited: bool) -> None:
    assert is_awaited(at, NOW, 30) is awaited


def test_a_minute_of_difference_is_no_wrong_clock() -> None:
    assert not is_ahead(NOW + SLACK, NOW)
    assert is_ahead(NOW + SLACK + 1, NOW)


def test_an_age_is_negative_only_for_what_lies_ahead() -> None:
    assert age_s(NOW - 5 * SECOND, NOW) == 5.0
    assert age_s(NOW + 5 * SECOND, NOW) == 0.0
    assert age_s(NOW + 500 * SECOND, NOW) == -500.0


def test_what_was_noticed_is_fresh_for_two_minutes_whichever_clock_noticed_it() -> None:
    assert is_fresh(NOW - FRESH, NOW)
    assert is_fresh(NOW + FRESH, NOW)
    assert not is_fresh(NOW - FRESH - 1, NOW)
    assert not is_fresh(NOW + FRESH + 1, NOW)
