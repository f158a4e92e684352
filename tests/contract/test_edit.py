"""Client.edit and Client.remove."""

from __future__ import annotations

import pytest

from covey.core.machine import SECOND
from covey.core.view import Edit, Filter, rfc3339
from covey.engine.engine import Engine
from covey.errors import InvalidInput, NotFound, Refused, StillStopping
from covey.testing import FakeClock
from tests.kit import HandPool, child, command


def test_only_what_is_named_is_changed(engine: Engine) -> None:
    (made,) = engine.enqueue([command(priority=1, queue="a", max_attempts=4)])
    job = engine.edit(made.id, Edit(priority=9))
    assert (job.priority, job.queue, job.max_attempts, job.state) == (9, "a", 4, "pending")
    job = engine.edit(made.id, Edit(queue="b", max_attempts=5))
    assert (job.priority, job.queue, job.max_attempts, job.state) == (9, "b", 5, "pending")
    assert [queue.name for queue in engine.queues()] == ["a", "b"]


def test_a_new_priority_and_queue_count_for_the_next_claim(engine: Engine) -> None:
    first, second, third = engine.enqueue([command(), command(), command()])
    engine.edit(third.id, Edit(priority=1))
    engine.edit(first.id, Edit(queue="other"))
    pool = HandPool(engine, queues=("default",))
    assert [claim.id for claim in pool.claim(9)] == [third.id, second.id]


def test_a_new_time_moves_a_job_between_pending_and_scheduled(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    later = clock() + 60 * SECOND
    job = engine.edit(made.id, Edit(run_at=later))
    assert (job.state, job.run_at) == ("scheduled", rfc3339(later))
    assert pool.claim(1) == []
    assert engine.edit(made.id, Edit(run_at=None)).state == "pending"
    pool.fail(pool.claim_one())
    assert engine.edit(made.id, Edit(run_at=later)).state == "failed"
    assert engine.job(made.id).retry_at == rfc3339(later)
    assert engine.edit(made.id, Edit(run_at=clock())).state == "pending"


@pytest.mark.parametrize(
    "edit",
    [
        Edit(priority=2**31),
        Edit(queue="no good"),
        Edit(max_attempts=0),
        Edit(run_at=2**70),
        Edit(run_at=253_402_300_800 * SECOND),
    ],
    ids=repr,
)
def test_a_bad_edit_is_refused_and_changes_nothing(engine: Engine, edit: Edit) -> None:
    (made,) = engine.enqueue([command()])
    before = engine.job(made.id)
    with pytest.raises(InvalidInput):
        engine.edit(made.id, edit)
    assert engine.job(made.id) == before


def test_max_attempts_cannot_fall_to_what_was_already_used(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.fail(pool.claim_one())
    with pytest.raises(InvalidInput):
        engine.edit(made.id, Edit(max_attempts=1))
    assert engine.edit(made.id, Edit(max_attempts=2)).max_attempts == 2


def test_a_job_that_runs_or_has_ended_is_not_edited(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    with pytest.raises(Refused):
        engine.edit(made.id, Edit(priority=1))
    pool.succeed(claim)
    with pytest.raises(Refused):
        engine.edit(made.id, Edit(priority=1))
    assert engine.job(made.id).priority == 0
    with pytest.raises(NotFound):
        engine.edit(99_999, Edit(priority=1))


def test_remove_takes_an_ended_job_with_all_that_is_known_of_it(engine: Engine, pool: HandPool) -> None:
    gone, kept = engine.enqueue([command(max_attempts=1), command()])
    pool.fail(pool.claim_one())
    (change,) = engine.remove([gone.id])
    assert (change.state, change.was) == ("removed", "dead")
    with pytest.raises(NotFound):
        engine.job(gone.id)
    assert engine.history(gone.id) == []
    assert [job.id for job in engine.jobs(Filter()).jobs] == [kept.id]


def test_remove_of_an_unfinished_job_needs_force(engine: Engine, pool: HandPool) -> None:
    waiting, running = engine.enqueue([command(priority=-1), command()])
    claim = pool.claim_one()
    with pytest.raises(Refused):
        engine.remove([waiting.id])
    engine.remove([waiting.id], force=True)
    with pytest.raises(StillStopping):  # its processes are not gone yet, but they are told to be
        engine.remove([running.id], force=True)
    assert engine.job(running.id).state == "cancelled"
    pool.report(claim, "gone")
    engine.remove([running.id])
    assert engine.jobs(Filter()).jobs == []


@pytest.mark.parametrize(
    "edit",
    [
        Edit(max_attempts=0),
        Edit(max_attempts=1_000_001),
        Edit(priority=2**31),
        Edit(queue="no queue"),
        Edit(run_at=253_402_300_800_000_000),
    ],
)
def test_an_edit_that_could_not_be_enqueued_is_refused_and_changes_nothing(engine: Engine, edit: Edit) -> None:
    (made,) = engine.enqueue([command()])
    before = engine.job(made.id)
    with pytest.raises(InvalidInput):
        engine.edit(made.id, edit)
    assert engine.job(made.id) == before


def test_an_edit_says_only_what_it_changes(engine: Engine, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(queue="a", priority=3, max_attempts=4, delay_s=60)])
    later = clock() + 120 * SECOND
    assert engine.edit(made.id, Edit(priority=0)).priority == 0
    view = engine.edit(made.id, Edit(run_at=later))
    assert (view.state, view.run_at) == ("scheduled", rfc3339(later))
    assert (view.priority, view.queue, view.max_attempts) == (0, "a", 4)
    view = engine.edit(made.id, Edit(queue="b", max_attempts=1))
    assert (view.queue, view.max_attempts, view.run_at, view.state) == ("b", 1, rfc3339(later), "scheduled")
    assert engine.edit(made.id, Edit(run_at=clock())).state == "pending"
    assert engine.edit(made.id, Edit(run_at=later)).state == "scheduled"
    assert engine.edit(made.id, Edit(run_at=None)).state == "pending"
    assert [event.kind for event in engine.events(made.id)] == ["edited"] * 6


def test_a_job_that_waits_for_its_next_try_is_still_that_when_the_try_is_moved(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command(max_attempts=3)])
    pool.fail(pool.claim_one())
    assert engine.edit(made.id, Edit(run_at=clock() + 60 * SECOND)).state == "failed"
    with pytest.raises(InvalidInput, match="has run 1 times already"):
        engine.edit(made.id, Edit(max_attempts=1))
    assert engine.edit(made.id, Edit(max_attempts=2)).max_attempts == 2


def test_several_jobs_are_changed_in_the_order_that_was_asked_for(engine: Engine) -> None:
    one, two = (made.id for made in engine.enqueue([command(key="one"), command(delay_s=5)]))
    changes = engine.cancel([two, "one"])
    assert [(change.id, change.state, change.was) for change in changes] == [
        (two, "cancelled", "scheduled"),
        (one, "cancelled", "pending"),
    ]
    again = engine.retry([one], again=True)[0]
    assert (again.id, again.state, again.was, engine.job(again.new_id or 0).state) == (
        one,
        "cancelled",
        "cancelled",
        "pending",
    )
    with pytest.raises(Refused, match="--again copies jobs that have ended"):
        engine.retry([again.new_id or 0], again=True)
    assert [event.text for event in engine.events(one)] == [f"as job {again.new_id}", "was pending"]
    assert engine.cancel([]) == []
    for ref in ("no-such-key", 10**18, str(10**19)):
        with pytest.raises(NotFound):
            engine.cancel([ref])


@pytest.mark.parametrize("run_at", [-62_135_646_000 * SECOND, -1, 0], ids=["before the calendar", "past", "epoch"])
def test_a_time_that_is_past_means_now_as_it_does_when_a_job_is_enqueued(
    engine: Engine, pool: HandPool, run_at: int
) -> None:
    (made,) = engine.enqueue([command(delay_s=60)])
    view = engine.edit(made.id, Edit(run_at=run_at))
    assert (view.state, view.run_at) == ("pending", None)
    assert [job.id for job in engine.jobs(Filter()).jobs] == [made.id]
    assert pool.claim_one().id == made.id


def test_a_parent_and_its_children_may_be_removed_in_one_request(engine: Engine, pool: HandPool) -> None:
    (root,) = engine.enqueue([command(max_attempts=1)])
    pool.spawn(pool.claim_one(), child(max_attempts=1))
    kid = pool.claim_one()
    pool.fail(kid)
    changes = engine.remove([kid.id, root.id])
    assert [(change.id, change.state, change.was) for change in changes] == [
        (kid.id, "removed", "dead"),
        (root.id, "removed", "dead"),
    ]
    assert engine.jobs(Filter()).jobs == []
