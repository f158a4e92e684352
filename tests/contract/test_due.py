"""Promotion: what has become due is pending, in the turn that notices."""

from __future__ import annotations

from covey.core.machine import SECOND
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, command


def test_a_scheduled_job_starts_at_its_time_and_not_before(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(run_at=clock() + 5)])
    clock.now += 4
    assert pool.claim(1) == []
    clock.now += 1
    assert pool.claim_one().id == made.id


def test_due_jobs_are_claimed_by_priority_and_age_not_by_due_time(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    one, two, three = engine.enqueue([command(delay_s=9), command(delay_s=5), command(delay_s=7, priority=1)])
    clock.advance(10)
    assert [claim.id for claim in pool.claim(3)] == [three.id, one.id, two.id]


def test_more_due_jobs_than_one_turn_promotes_come_with_the_next_turns(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    engine.enqueue([command(delay_s=1) for _ in range(2500)])
    clock.advance(2)
    counts = []
    for _ in range(3):
        pool.beat()
        counts.append(engine.status().counts["pending"])
    assert counts == [1000, 2000, 2500]


def test_a_clock_that_steps_back_loses_nothing(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    """The lease does not depend on the wall clock; a due time does, and waits for it to come again."""
    (made,) = engine.enqueue([command(delay_s=10)])
    clock.advance(10)
    clock.advance(-3600)
    assert pool.claim(1) == []
    clock.advance(3600)
    claim = pool.claim_one()
    clock.advance(-86_400)
    pool.beat(claim)
    assert engine.pools()[0].beat > 0
    pool.succeed(claim)
    assert engine.job(made.id).state == "completed"
    assert pool.turn(want=1).next_due_at is None


def test_every_end_has_its_time(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    made = engine.enqueue([command(max_attempts=1) for _ in range(3)])
    for outcome in ("success", "failure", "abort"):
        clock.advance(1)
        pool.report(pool.claim_one(), outcome, error="x")
    assert all(engine.job(each.id).finished_at for each in made)
    assert clock() % SECOND == 0
