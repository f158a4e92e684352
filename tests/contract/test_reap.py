"""Source.reap: a lost pool is not the job's fault."""

from __future__ import annotations

import pytest

from covey.core.model import LONELY_INTERRUPTIONS, MAX_INTERRUPTIONS
from covey.engine.engine import Engine
from covey.errors import CoveyError
from tests.kit import HandPool, command
from tests.kit.faults import failpoint
from tests.kit.hand_pool import report


def test_a_lost_pool_s_jobs_are_pending_again_without_cost(engine: Engine) -> None:
    ids = [made.id for made in engine.enqueue([command(max_attempts=1) for _ in range(3)])]
    pool = HandPool(engine)
    claims = pool.claim(2)
    assert pool.lose() == 2
    jobs = [engine.job(id) for id in ids]
    assert [(job.state, job.attempts, job.pool, job.interruptions) for job in jobs] == [
        ("pending", 0, None, 1),
        ("pending", 0, None, 1),
        ("pending", 0, None, 0),
    ]
    assert [job.fence for job in jobs] == [claims[0].fence + 1, claims[1].fence + 1, 0]
    assert engine.pools() == []
    assert "interrupted" in [event.kind for event in engine.events(ids[0])]


def test_how_a_pool_was_lost_is_told_with_each_of_its_jobs(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    pool = HandPool(engine, name="box-1")
    pool.claim_one()
    (seen,) = engine.pools()
    assert seen.name == "box-1"
    assert engine.reap(pool.id, seen.beat, "its container ran out of memory") == 1
    told = "its pool was lost: its container ran out of memory"
    assert [event.text for event in engine.events(made.id) if event.kind == "interrupted"] == [told]
    assert told in engine.why(made.id).reason
    (lost,) = [event for event in engine.pool_events(pool.id) if event.kind == "pool_lost"]
    assert lost.text == "1 jobs handed back: its container ran out of memory"


def test_a_job_that_was_interrupted_too_often_says_how_the_last_time(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    for _ in range(MAX_INTERRUPTIONS + 1):
        pool = HandPool(engine)
        pool.claim_one()
        (seen,) = engine.pools()
        engine.reap(pool.id, seen.beat, "its container ran out of memory")
    job = engine.job(made.id)
    assert job.state == "dead"
    assert (job.error or "").endswith("the last time, its container ran out of memory")


def test_a_pool_that_has_beaten_since_is_not_reaped(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    (seen,) = engine.pools()
    pool.beat(claim)
    assert engine.reap(pool.id, seen.beat) == 0
    assert engine.job(made.id).state == "processing"
    assert [each.id for each in engine.pools()] == [pool.id]


def test_a_reaped_pool_s_turn_is_answered_lost_and_does_nothing(engine: Engine, pool: HandPool) -> None:
    first, second = engine.enqueue([command(), command()])
    claim = pool.claim_one()
    pool.lose()
    reply = pool.turn(report(claim, "success"), want=4, held=[claim])
    assert reply.lost
    assert (reply.claims, reply.cancels, reply.stop) == ([], [], False)
    assert [engine.job(made.id).state for made in (first, second)] == ["pending", "pending"]
    assert pool.turn(want=1).lost  # an idle turn too


def test_reaping_twice_does_nothing_more(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    (seen,) = engine.pools()
    assert engine.reap(pool.id, seen.beat) == 1
    before = engine.job(made.id)
    assert engine.reap(pool.id, seen.beat) == 0
    assert engine.job(made.id) == before


def test_interruptions_are_bounded_and_then_the_job_is_dead(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    for n in range(1, MAX_INTERRUPTIONS + 2):
        pool = HandPool(engine)
        assert pool.claim_one().interruptions == n - 1
        pool.lose()
        job = engine.job(made.id)
        assert (job.state, job.interruptions) == ("pending" if n <= MAX_INTERRUPTIONS else "dead", n)
    assert f"interrupted {MAX_INTERRUPTIONS + 1} times" in (job.error or "")
    assert (job.pool, HandPool(engine).claim(1)) == (None, [])


def test_from_the_third_interruption_on_a_job_is_claimed_only_for_an_idle_worker(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    (other,) = engine.enqueue([command(priority=-9)])
    for n in range(LONELY_INTERRUPTIONS):
        pool = HandPool(engine)
        assert pool.claim_one(idle=n % 2 == 0).id == made.id
        pool.lose()
    pool = HandPool(engine)
    assert pool.claim(1, idle=False) == []  # it keeps its place in the line
    assert [claim.id for claim in pool.claim(5, idle=False)] == [other.id]
    assert pool.claim(5, idle=False) == []
    assert pool.claim_one(idle=True).id == made.id


def test_a_reaper_that_dies_before_its_commit_has_done_nothing(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    with failpoint("reap.before_commit", "raise"), pytest.raises((OSError, CoveyError)):
        pool.lose()
    assert (engine.job(made.id).state, engine.job(made.id).interruptions) == ("processing", 0)
    assert pool.lose() == 1


def test_a_pool_with_more_jobs_than_one_batch_is_reaped_completely(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command() for _ in range(2300)])
    assert len(pool.claim(2300)) == 2300
    assert engine.orphaned_pools() == []
    assert pool.lose() == 2300
    assert engine.orphaned_pools() == []
    assert engine.status().counts["pending"] == 2300


def test_reaping_one_pool_leaves_the_others_alone(engine: Engine) -> None:
    ids = [made.id for made in engine.enqueue([command(), command()])]
    one, two = HandPool(engine, name="same"), HandPool(engine, name="same")
    one.claim_one()
    two.claim_one()
    one.lose()
    assert [engine.job(id).state for id in ids] == ["pending", "processing"]


def test_pool_ids_are_never_used_again(engine: Engine) -> None:
    one = HandPool(engine)
    one.lose()
    assert HandPool(engine).id > one.id
