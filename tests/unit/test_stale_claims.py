"""A pool that was away for longer than its lease starts nothing before a turn has confirmed its claims."""

from __future__ import annotations

import os
from collections.abc import Callable

from covey.engine.engine import Engine
from covey.log import Log
from covey.pool.pool import Pool
from covey.pool.reaper import Reaper
from covey.pool.turn_loop import TurnLoop
from covey.pool.worker_types import plain
from covey.pool.workers import Workers
from covey.testing import until
from tests.kit import HandPool, command


def turn_loop_of(engine: Engine, pool: HandPool, lease_s: float) -> TurnLoop:
    log = Log("test", quiet=True)
    return TurnLoop(
        engine,
        Reaper(engine, engine.database_id, log),
        log,
        pool=pool.id,
        database_id=engine.database_id,
        types=plain(1, None),
        beat_s=0.05,
        lease_s=lease_s,
    )


def test_claims_are_fresh_while_turns_go_on_and_no_longer_a_lease_after_the_last(
    connect: Callable[[], Engine], pool: HandPool
) -> None:
    turn_loop = turn_loop_of(connect(), pool, lease_s=0.5)
    assert not turn_loop.fresh()
    turn_loop.start()
    until(turn_loop.fresh, 5, "a turn confirms them")
    turn_loop.close()
    until(lambda: not turn_loop.fresh(), 5, "a lease has passed")


def test_a_turn_that_says_that_the_pool_was_given_up_confirms_nothing(
    connect: Callable[[], Engine], pool: HandPool
) -> None:
    """Its claims may run elsewhere by now, and are not to be started before it has begun anew."""
    pool.lose()
    turn_loop = turn_loop_of(connect(), pool, lease_s=30)
    heard: list[tuple[bool, bool]] = []
    turn_loop.on_reply = lambda reply: heard.append((reply.lost, turn_loop.fresh()))
    turn_loop.start()
    try:
        until(lambda: heard, 5, "it hears of it")
        assert heard == [(True, False)]
    finally:
        turn_loop.close()


def test_a_claim_that_may_run_elsewhere_by_now_goes_back_instead_of_to_a_worker(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    log = Log("test", quiet=True)
    turn_loop = turn_loop_of(engine, pool, lease_s=0.5)
    stale = Pool(
        turn_loop,
        Workers(log, turn_loop.note, limit=1, concurrency=1),
        lambda: None,  # type: ignore[arg-type, return-value]
        log,
        types=plain(1, None),
        live="",
        grace_s=1,
        rejoin=lambda: None,
    )
    try:
        stale.place([claim])
        assert [(report.id, report.outcome) for report in stale._unsent] == [(claim.id, "taken_back")]
        assert stale._waiting == []
    finally:
        os.close(stale._bell)
        stale._selector.close()
