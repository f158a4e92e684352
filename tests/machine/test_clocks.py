"""The rules about instants that a clock which was ahead has written."""

from __future__ import annotations

import pytest

from covey.core.clocks import FRESH, LOOKED, SLACK, age_s, has_stood, is_ahead, is_awaited
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


@pytest.mark.parametrize(
    ("age", "stood"),
    [(-FRESH - 1, False), (0, False), (FRESH, False), (FRESH + 1, True), (LOOKED, True), (LOOKED + 1, False)],
)
def test_a_notice_counts_once_it_has_stood_for_a_while_by_the_same_clock(age: int, stood: bool) -> None:
    assert has_stood(NOW - age, NOW) is stood
