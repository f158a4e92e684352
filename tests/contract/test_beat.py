"""Engine.beat: many pools are alive, said by somebody who speaks for them."""

from __future__ import annotations

import pytest

from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, command

BEHIND = True


@pytest.fixture
def pools(engine: Engine) -> list[HandPool]:
    return [HandPool(engine, name=f"pool-{n}") for n in range(3)]


def test_every_beat_moves_and_no_other_pool_s(engine: Engine, pools: list[HandPool], clock: FakeClock) -> None:
    before = {pool.id: pool.beat for pool in engine.pools()}
    clock.advance(7)
    assert engine.beat([pools[2].id, pools[0].id]) == set()
    after = {pool.id: pool.beat - before[pool.id] for pool in engine.pools()}
    assert after == {pools[0].id: 1, pools[1].id: 0, pools[2].id: 1}
    assert [view.beat_age_s for view in engine.pool_views()] == [0.0, 7.0, 0.0]


def test_those_that_were_given_up_are_named(engine: Engine, pools: list[HandPool]) -> None:
    pools[1].lose()
    assert engine.beat([pool.id for pool in pools] + [999]) == {pools[1].id, 999}
    assert len(engine.pools()) == 2


def test_a_pool_that_has_beaten_is_not_reaped(engine: Engine, pools: list[HandPool]) -> None:
    engine.enqueue([command()])
    claim = pools[0].claim_one()
    seen = {pool.id: pool.beat for pool in engine.pools()}
    engine.beat([pools[0].id])
    assert engine.reap(pools[0].id, seen[pools[0].id]) == 0
    assert engine.job(claim.id).state == "processing"


def test_turns_are_numbered_as_if_there_had_been_no_beat(engine: Engine, pools: list[HandPool]) -> None:
    pools[0].beat()
    for _ in range(5):
        engine.beat([pools[0].id])
    assert pools[0].number == 1
    assert not pools[0].beat().lost


def test_nobody_beats_for_nobody(engine: Engine) -> None:
    assert engine.beat([]) == set()
