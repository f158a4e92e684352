"""What the database gave up is begun again, a bounded number of times, after pauses that grow."""

from __future__ import annotations

import pytest

from covey.engine import again
from covey.errors import StoreError, Undone


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """The bounds of each pause; nobody waits."""
    seen: list[tuple[float, float]] = []
    monkeypatch.setattr(again.random, "uniform", lambda low, high: seen.append((low, high)) or high)
    monkeypatch.setattr(again.time, "sleep", lambda s: None)
    return seen


def undone(times: int, error: type[Exception] = Undone) -> tuple[list[int], object]:
    """(what was called, a verb that is undone so often)."""
    calls: list[int] = []

    @again.repeated
    def verb(base: int, *, more: int) -> int:
        """Adds."""
        calls.append(base)
        if len(calls) <= times:
            raise error("undone")
        return base + more

    return calls, verb


def test_a_verb_that_is_undone_is_begun_again_with_what_it_was_given(pauses: list[tuple[float, float]]) -> None:
    calls, verb = undone(2)
    assert verb(3, more=4) == 7  # type: ignore[operator]
    assert calls == [3, 3, 3]
    assert pauses == [(0, 0.002), (0, 0.004)]
    assert (verb.__name__, verb.__doc__) == ("verb", "Adds.")


def test_a_verb_that_is_done_waits_for_nobody(pauses: list[tuple[float, float]]) -> None:
    calls, verb = undone(0)
    assert verb(1, more=1) == 2  # type: ignore[operator]
    assert (len(calls), pauses) == (1, [])


def test_after_thirty_tries_it_is_over_and_no_pause_was_longer_than_a_quarter_of_a_second(
    pauses: list[tuple[float, float]],
) -> None:
    calls, verb = undone(30)
    with pytest.raises(Undone):
        verb(1, more=1)  # type: ignore[operator]
    assert len(calls) == 30
    assert len(pauses) == 29
    assert max(high for _, high in pauses) == 0.25
    calls, verb = undone(29)
    assert verb(1, more=1) == 2  # type: ignore[operator]


def test_whatever_else_goes_wrong_is_not_tried_again(pauses: list[tuple[float, float]]) -> None:
    calls, verb = undone(1, StoreError)
    with pytest.raises(StoreError):
        verb(1, more=1)  # type: ignore[operator]
    assert len(calls) == 1
