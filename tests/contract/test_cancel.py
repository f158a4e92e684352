"""Client.cancel: it will not run any more; what runs is being stopped."""

from __future__ import annotations

import pytest

from covey.core.turn import Held
from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.env import hostname
from covey.errors import NotFound, Refused, StillStopping
from covey.testing import FakeClock
from tests.kit import HandPool, command


def test_a_job_that_has_not_started_is_cancelled_at_once(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    pending, scheduled, failed = engine.enqueue([command(priority=-1), command(delay_s=9), command(max_attempts=2)])
    pool.fail(pool.claim_one())
    ids = [made.id for made in (pending, scheduled, failed)]
    changes = engine.cancel(ids)
    assert [(change.id, change.was, change.state) for change in changes] == [
        (pending.id, "pending", "cancelled"),
        (scheduled.id, "scheduled", "cancelled"),
        (failed.id, "failed", "cancelled"),
    ]
    assert [engine.job(id).state for id in ids] == ["cancelled"] * 3
    assert all(engine.job(id).finished_at for id in ids)
    clock.advance(1000)
    assert pool.claim(9) == []


def test_a_running_job_is_cancelled_and_its_pool_told_to_end_the_family(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    engine.cancel([made.id])
    job = engine.job(made.id)
    assert (job.state, job.pool, job.fence) == ("cancelled", pool.id, claim.fence + 1)
    for _ in range(2):  # until the pool says that it is gone
        assert pool.turn(want=1).cancels == [Held(claim.id, claim.fence)]  # by the fence that the pool knows
    assert pool.report(claim, "gone").refused == []
    assert engine.job(made.id).pool is None
    assert pool.beat().cancels == []


@pytest.mark.parametrize("outcome", ["success", "failure", "worker_lost", "abort", "stopped", "snooze", "taken_back"])
def test_however_a_cancelled_run_ends_the_job_stays_cancelled_and_is_released(
    engine: Engine, pool: HandPool, outcome: str
) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    engine.cancel([made.id])
    pool.report(claim, outcome, error="x", result="1")
    job = engine.job(made.id)
    assert (job.state, job.pool, job.result) == ("cancelled", None, None)
    assert [attempt.outcome for attempt in engine.history(made.id)] == ["cancelled"]


def test_retry_is_refused_while_the_family_is_still_stopping(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    engine.cancel([made.id])
    with pytest.raises(StillStopping):
        engine.retry([made.id])
    with pytest.raises(Refused):
        engine.remove([made.id], force=True)
    assert engine.job(made.id).pool == pool.id
    pool.report(claim, "gone")
    engine.retry([made.id])
    assert engine.job(made.id).state == "pending"


def test_retry_of_a_job_whose_pool_is_gone_says_who_ends_its_processes(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    engine.cancel([made.id])
    clock.advance(100)  # nobody has heard of the pool since
    gone = (
        rf"job {made.id} was cancelled .* pool {pool.id} \(hand on host-a\), which has to end its processes, is gone; "
    )
    for verb in (engine.retry, engine.remove):
        with pytest.raises(
            Refused, match=gone + "a pool does it after a lease: `covey worker start`, then try again"
        ) as no:
            verb([made.id])
        assert not isinstance(no.value, StillStopping)  # to wait would help nobody
    found = engine.why(made.id)
    assert (f"pool {pool.id}, which has to end its processes, is gone" in found.reason, found.advice) == (
        True,
        ["covey worker reap"],
    )
    other = HandPool(engine, host=hostname(), boot="x")
    with pytest.raises(StillStopping, match=gone + "another pool sees to that soon"):
        engine.retry([made.id])
    pool.lose()
    engine.retry([made.id])
    assert other.claim_one().id == made.id


def test_an_old_run_s_report_does_not_release_the_run_that_is_being_stopped(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    first = pool.claim_one()
    pool.report(first, "taken_back")
    pool.claim_one()
    engine.cancel([made.id])
    assert pool.report(first, "taken_back").refused == [Held(first.id, first.fence)]
    assert engine.job(made.id).pool == pool.id


def test_a_cancelled_job_of_a_lost_pool_is_released(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    engine.cancel([made.id])
    pool.lose()
    job = engine.job(made.id)
    assert (job.state, job.pool, job.interruptions) == ("cancelled", None, 0)


@pytest.mark.parametrize("end", ["completed", "dead", "cancelled"])
def test_an_ended_job_cannot_be_cancelled(engine: Engine, pool: HandPool, end: str) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    if end == "cancelled":
        engine.cancel([made.id])
    else:
        claim = pool.claim_one()
        pool.succeed(claim) if end == "completed" else pool.fail(claim)
    before = engine.job(made.id)
    with pytest.raises(Refused):
        engine.cancel([made.id])
    assert engine.job(made.id) == before


def test_a_cancel_of_several_with_one_that_cannot_changes_none(engine: Engine) -> None:
    ids = [made.id for made in engine.enqueue([command(), command()])]
    with pytest.raises(NotFound):
        engine.cancel([*ids, 99_999])
    assert [job.state for job in engine.jobs(Filter()).jobs] == ["pending", "pending"]
    assert engine.cancel([]) == []
