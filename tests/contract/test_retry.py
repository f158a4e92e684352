"""Client.retry: a person wants it after all."""

from __future__ import annotations

import pytest

from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import NotFound, Refused
from covey.testing import FakeClock
from tests.kit import HandPool, child, command, python_task


def test_a_failed_job_runs_now_with_its_attempts_kept(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.fail(pool.claim_one())
    (change,) = engine.retry([made.id])
    assert (change.was, change.state) == ("failed", "pending")
    assert pool.claim_one().attempt == 2


def test_a_dead_job_gets_all_its_attempts_again_and_keeps_its_history(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    pool.fail(pool.claim_one(), "first")
    engine.retry([made.id])
    job = engine.job(made.id)
    assert (job.state, job.attempts, job.error, job.finished_at) == ("pending", 0, None, None)
    claim = pool.claim_one()
    assert (claim.attempt, claim.fence) == (1, 2)
    pool.fail(claim, "second")
    assert [attempt.error for attempt in engine.history(made.id)] == ["first", "second"]
    assert engine.job(made.id).state == "dead"


def test_a_job_that_died_of_interruptions_starts_with_a_clean_count(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    while engine.job(made.id).state != "dead":
        pool = HandPool(engine)
        pool.claim_one()
        pool.lose()
    engine.retry([made.id])
    assert (engine.job(made.id).interruptions, engine.job(made.id).attempts) == (0, 0)
    pool = HandPool(engine)
    pool.claim_one()
    pool.lose()
    assert engine.job(made.id).state == "pending"


def test_a_cancelled_job_is_pending_again(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command(delay_s=1000)])
    engine.cancel([made.id])
    engine.retry([made.id])
    assert (engine.job(made.id).state, engine.job(made.id).finished_at) == ("pending", None)
    pool.succeed(pool.claim_one())
    assert engine.job(made.id).state == "completed"


@pytest.mark.parametrize("state", ["pending", "scheduled", "processing", "completed"])
def test_a_job_that_needs_no_retry_is_refused_with_advice(engine: Engine, pool: HandPool, state: str) -> None:
    (made,) = engine.enqueue([command(delay_s=60 if state == "scheduled" else None)])
    if state in ("processing", "completed"):
        claim = pool.claim_one()
        if state == "completed":
            pool.succeed(claim)
    before = engine.job(made.id)
    assert before.state == state
    with pytest.raises(Refused) as refusal:
        engine.retry([made.id])
    assert str(made.id) in str(refusal.value)
    assert engine.job(made.id) == before


def test_a_second_retry_and_an_unknown_job_change_nothing(engine: Engine, pool: HandPool) -> None:
    dead, other = engine.enqueue([command(max_attempts=1), command()])
    pool.fail(pool.claim_one())
    with pytest.raises(NotFound):
        engine.retry([dead.id, 99_999])
    assert engine.job(dead.id).state == "dead"
    engine.retry([dead.id])
    with pytest.raises(Refused):
        engine.retry([dead.id])
    assert engine.job(other.id).state == "pending"


def test_retry_again_queues_an_ended_job_as_a_new_one(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([python_task("t", 1, key="k", priority=4, max_attempts=7, batch="b", labels={"a": "b"})])
    pool.succeed(pool.claim_one(), result="5")
    before = engine.job(made.id)
    clock.advance(5)
    (change,) = engine.retry([made.id], again=True)
    assert engine.job(made.id) == before
    new = engine.job(change.new_id)
    assert new.id > made.id
    assert (new.state, new.key, new.attempts, new.fence, new.result) == ("pending", None, 0, 0, None)
    assert (new.task, new.args, new.priority, new.max_attempts) == ("t", before.args, 4, 7)
    assert (new.batch, new.labels, new.root_id) == ("b", {"a": "b"}, new.id)
    assert pool.claim_one().id == new.id


def test_retry_again_is_refused_for_a_job_that_has_not_ended(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    with pytest.raises(Refused):
        engine.retry([made.id], again=True)
    assert len(engine.jobs(Filter()).jobs) == 1


def test_a_job_that_is_named_twice_is_one_job(engine: Engine) -> None:
    one, two = engine.enqueue([command(key="k"), command()])
    assert [change.id for change in engine.cancel(["k", two.id, one.id])] == [one.id, two.id]
    (copied,) = engine.retry([one.id, "k", one.id], again=True)
    assert [job.id for job in engine.jobs(Filter()).jobs] == [copied.new_id, two.id, one.id]
    assert [change.state for change in engine.retry([one.id, "k"])] == ["pending"]


def test_a_child_that_goes_when_its_parent_starts_over_counts_as_removed(engine: Engine, pool: HandPool) -> None:
    (root,) = engine.enqueue([command(max_attempts=1)])
    pool.spawn(pool.claim_one(), child(max_attempts=1))
    kid = pool.claim_one()
    pool.fail(kid)
    changes = engine.retry([kid.id, root.id], all=True)
    assert [(change.id, change.state) for change in changes] == [(kid.id, "removed"), (root.id, "pending")]
