"""`--drain`: when is nothing left to wait for?"""

from __future__ import annotations

from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, command, python_task


def drained(pool: HandPool) -> bool:
    """The answer to a pool that is full, so that it claims nothing."""
    return pool.turn(draining=True).drained


def test_an_empty_queue_is_drained(engine: Engine, pool: HandPool) -> None:
    assert drained(pool)
    assert engine.pool_views()[0].state == "draining"


def test_pending_processing_and_failed_jobs_hold_it(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.enqueue([command(max_attempts=2)])
    assert not drained(pool)
    claim = pool.claim_one(draining=True)
    assert not drained(pool)
    pool.fail(claim)
    assert not drained(pool)
    clock.advance(2)
    pool.fail(pool.claim_one(draining=True))
    assert drained(pool)


def test_a_job_that_another_pool_runs_holds_it(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    other = HandPool(engine)
    claim = other.claim_one()
    assert not drained(pool)
    other.succeed(claim)
    assert drained(pool)


def test_scheduled_paused_and_foreign_jobs_do_not_hold_it(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(delay_s=60), command(queue="paused"), command(queue="foreign"), python_task("t")])
    engine.pause("paused")
    pool = HandPool(engine, queues=("default", "paused"), kinds=("command",))
    assert drained(pool)
    engine.resume("paused")
    assert not drained(pool)


def test_a_failed_job_of_a_paused_queue_does_not_hold_it(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    pool.fail(pool.claim_one())
    engine.pause("default")
    assert drained(pool)


def test_a_turn_that_claims_is_not_drained(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    assert not pool.turn(want=1, draining=True).drained
