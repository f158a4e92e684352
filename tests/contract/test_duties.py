"""Duties: whoever takes a turn does what is due, once a period for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.engine import duties
from covey.engine.duties.duty import Due, Duty
from covey.engine.engine import Engine
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit import HandPool

BEHIND = True


def test_a_duty_without_a_row_is_done_and_has_one_afterwards(
    engine: Engine, pool: HandPool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def note(store: Store, due: Due) -> bool:
        done.append(due.cursor)
        due.cursor += 7
        return False

    pool.beat()
    monkeypatch.setattr(duties, "ALL", (*duties.ALL, Duty("new", note)))
    engine.store.raw("delete from {duties} where name <> 'heal'")
    clock.advance(31)
    pool.beat()
    names = {row[0] for row in engine.store.raw("select name from {duties}")}
    assert names == {duty.name for duty in duties.ALL}
    pool.beat()
    assert done == [0]
    clock.advance(31)
    pool.beat()
    assert done == [0, 7]


def test_a_duty_is_done_once_a_period_whoever_takes_a_turn(
    connect: Callable[[], Engine], pool: HandPool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    more = [True, False, False, False]

    def note(store: Store, due: Due) -> bool:
        done.append(due.now)
        return more.pop(0)

    monkeypatch.setattr(duties, "ALL", (Duty("new", note),))
    other = HandPool(connect())
    clock.advance(31)
    start = clock()
    for each in (pool, other, pool):
        each.beat()
    assert done == [start, start], "as more was waiting, the next turn went on"
    clock.advance(31)
    for each in (other, pool, other):
        each.beat()
    assert done == [start, start, clock()]
