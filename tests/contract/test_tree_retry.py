"""Retry flows up and down: what did not complete runs again, and its family takes it back."""

from __future__ import annotations

import pytest

from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import Refused, StillStopping
from tests.kit import HandPool, after, check_queue, child, command, python_task

from .family import children, claims, parent_of, root, states


def died(engine: Engine, pool: HandPool, **spec: object) -> tuple[int, list[int]]:
    """A dead parent: of its three children the second is dead."""
    id, kids = parent_of(engine, pool, 3, **spec)
    running = claims(pool, 3)
    pool.succeed(running[kids[0]], result="0")
    pool.fail(running[kids[1]], "boom")
    pool.succeed(running[kids[2]], result="2")
    return id, kids


def test_a_retried_child_reopens_its_dead_parent(engine: Engine, pool: HandPool) -> None:
    id, kids = died(engine, pool)
    assert states(engine, id) == ["dead"]
    engine.retry([kids[1]])
    job = engine.job(id)
    assert (job.state, job.error, job.finished_at) == ("waiting", None, None)
    assert (job.children.unfinished, job.children.failed) == (1, 0)
    assert check_queue(engine) == []
    claim = pool.claim_one()
    assert (claim.id, claim.attempt) == (kids[1], 1)
    pool.succeed(claim)
    assert states(engine, id, *kids) == ["completed"] * 4


def test_a_retried_child_of_a_waiting_parent_counts_as_unfinished_again(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 2)
    pool.fail(pool.claim_one())
    engine.retry([kids[0]])
    assert (engine.job(id).children.unfinished, engine.job(id).children.failed) == (2, 0)
    for _ in kids:
        pool.succeed(pool.claim_one())
    assert states(engine, id) == ["completed"]


def test_a_retried_parent_runs_only_what_is_not_completed(engine: Engine, pool: HandPool) -> None:
    id, kids = died(engine, pool, joins=True)
    (change,) = engine.retry([id])
    assert (change.was, change.state) == ("dead", "waiting")
    assert states(engine, id, *kids) == ["waiting", "completed", "pending", "completed"]
    pool.succeed(pool.claim_one())
    claim = pool.claim_one()
    assert (claim.id, claim.phase) == (id, "join")
    pool.succeed(claim, result="9")
    assert (engine.job(id).state, engine.job(id).result) == ("completed", 9)


def test_a_retried_parent_whose_join_failed_runs_the_join_again(engine: Engine, pool: HandPool) -> None:
    id, _ = parent_of(engine, pool, 1, joins=True, max_attempts=1)
    pool.succeed(pool.claim_one(), result="1")
    pool.fail(pool.claim_one(), "join")
    assert states(engine, id) == ["dead"]
    engine.retry([id])
    claim = pool.claim_one()
    assert (claim.id, claim.phase, claim.attempt) == (id, "join", 1)
    assert claim.children is not None


def test_a_retried_child_makes_a_join_that_died_of_it_run_again(engine: Engine, pool: HandPool) -> None:
    id, kids = died(engine, pool, joins=True, on_error="collect", max_attempts=1)
    pool.fail(pool.claim_one(), "not without it")
    assert (engine.job(id).state, engine.job(id).phase) == ("dead", "join")
    engine.retry([kids[1]])
    assert (engine.job(id).state, engine.job(id).phase) == ("waiting", "run")
    pool.succeed(pool.claim_one())
    assert pool.claim_one().phase == "join"


def test_retry_all_deletes_the_children_and_runs_the_handler_again(engine: Engine, pool: HandPool) -> None:
    id, kids = died(engine, pool)
    engine.retry([id], all=True)
    job = engine.job(id)
    assert (job.state, job.phase, job.attempts, job.result, job.children.total) == ("pending", "run", 0, None, 0)
    assert [job.id for job in engine.jobs(Filter()).jobs] == [id]
    pool.spawn(pool.claim_one(), child(), child())
    assert [job.child_no for job in children(engine, id)] == [0, 1]
    assert not {job.id for job in children(engine, id)} & set(kids)


def test_retry_all_of_a_child_reopens_its_ancestors_too(engine: Engine, pool: HandPool) -> None:
    id, kids = died(engine, pool)
    engine.retry([kids[1]], all=True)
    assert states(engine, id, kids[1]) == ["waiting", "pending"]


@pytest.mark.parametrize("all", [False, True])
def test_a_retried_serial_child_waits_for_the_one_before_it(engine: Engine, pool: HandPool, all: bool) -> None:
    id = root(engine, pool, child("one"), child("two"), report={"child_mode": "serial"})
    first, second = (job.id for job in children(engine, id))
    running = pool.claim_one()
    engine.cancel([second])
    engine.retry([second], all=all)
    assert states(engine, first, second) == ["processing", "blocked"]
    assert pool.turn(want=5, held=[running]).claims == []
    pool.succeed(running)
    claim = pool.claim_one()
    assert (claim.id, claim.attempt) == (second, 1)
    pool.succeed(claim)
    assert states(engine, id) == ["completed"]


def test_a_serial_child_behind_one_that_was_cancelled_is_refused_although_another_still_runs(
    engine: Engine, pool: HandPool
) -> None:
    """It would be cancelled again as soon as its turn came."""
    id = root(engine, pool, child("one"), child("two"), child("three"), report={"child_mode": "serial"})
    first, second, third = (job.id for job in children(engine, id))
    engine.cancel([second])
    assert states(engine, first, second, third) == ["pending", "cancelled", "cancelled"]
    with pytest.raises(
        Refused, match=f"job {second} comes before job {third} and did not complete; retry {second} first"
    ):
        engine.retry([third])
    engine.retry([second])
    assert states(engine, first, second, third) == ["pending", "blocked", "blocked"]


@pytest.mark.parametrize("all", [False, True])
def test_a_retried_uncle_waits_for_its_root(engine: Engine, pool: HandPool, all: bool) -> None:
    id = root(engine, pool, child("child"), after("uncle"))
    uncle = engine.newest_id()
    engine.cancel([uncle])
    engine.retry([uncle], all=all)
    assert states(engine, uncle) == ["blocked"]
    pool.succeed(pool.claim_one())
    assert states(engine, id, uncle) == ["completed", "pending"]


def deep(engine: Engine, pool: HandPool) -> list[int]:
    """Three levels, dead from the bottom up."""
    engine.set_queue("default", max_depth=3)
    ids = [root(engine, pool, child(max_attempts=1))]
    for _ in range(2):
        claim = pool.claim_one()
        ids.append(claim.id)
        pool.spawn(claim, child(max_attempts=1))
    claim = pool.claim_one()
    pool.fail(claim, "bottom")
    return [*ids, claim.id]


def test_retry_flows_up_through_dead_ancestors(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool)
    assert states(engine, *ids) == ["dead"] * 4
    engine.retry([ids[3]])
    assert states(engine, *ids) == ["waiting", "waiting", "waiting", "pending"]
    assert check_queue(engine) == []
    pool.succeed(pool.claim_one())
    assert states(engine, *ids) == ["completed"] * 4


def test_retry_flows_down_to_what_died(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool)
    engine.retry([ids[1]])
    assert states(engine, *ids) == ["waiting", "waiting", "waiting", "pending"]
    assert check_queue(engine) == []


def test_all_dead_letters_of_a_tree_may_be_retried_in_one_request_in_any_order(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool)
    changes = engine.retry(list(reversed(ids)))
    assert [change.was for change in changes] == ["dead"] * 4
    assert states(engine, *ids) == ["waiting", "waiting", "waiting", "pending"]
    assert check_queue(engine) == []


def test_a_cancelled_ancestor_refuses_and_names_itself(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool)
    engine.retry([ids[3]])
    engine.cancel([ids[1]])
    assert states(engine, *ids) == ["dead", "cancelled", "cancelled", "cancelled"]
    for id in ids[2:]:
        with pytest.raises(Refused, match=f"retry {ids[1]} instead"):
            engine.retry([id])
    engine.retry([ids[1]])
    assert states(engine, *ids) == ["waiting", "waiting", "waiting", "pending"]


def test_a_completed_parent_does_not_take_a_child_back(engine: Engine, pool: HandPool) -> None:
    id, kids = died(engine, pool, joins=True, on_error="collect")
    with pytest.raises(Refused, match="without"):
        engine.retry([kids[1]])  # the join is due
    pool.succeed(pool.claim_one())
    with pytest.raises(Refused, match="completed"):
        engine.retry([kids[1]])
    assert states(engine, id, kids[1]) == ["completed", "dead"]


def test_a_tree_with_a_process_left_is_not_reopened(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 2)
    claim = pool.claim_one()
    engine.cancel([id])
    for everything in (False, True):
        with pytest.raises(StillStopping, match=str(claim.id)):
            engine.retry([id], all=everything)
    assert states(engine, id, *kids) == ["cancelled"] * 3
    pool.report(claim, "gone")
    engine.retry([id])
    assert states(engine, id, *kids) == ["waiting", "pending", "pending"]


def test_a_cancelled_parent_whose_children_had_all_completed_settles_at_once(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 2, joins=True)
    running = claims(pool, 2)
    pool.succeed(running[kids[0]])
    engine.cancel([kids[1]])
    assert states(engine, id) == ["dead"]
    pool.report(running[kids[1]], "gone")
    engine.retry([kids[1]])
    pool.succeed(pool.claim_one())
    engine.cancel([id])  # in its join
    engine.retry([id])
    assert (engine.job(id).state, engine.job(id).phase) == ("pending", "join")


def test_children_retried_beside_an_old_failure_are_not_cancelled_because_of_it(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 4, on_error="cancel")
    pool.fail(pool.claim_one(), "boom")
    assert states(engine, id, *kids) == ["dead", "dead", "cancelled", "cancelled", "cancelled"]
    engine.retry(kids[1:3])
    pool.succeed(pool.claim_one())
    assert states(engine, id, *kids) == ["waiting", "dead", "completed", "pending", "cancelled"]
    pool.succeed(pool.claim_one())
    assert states(engine, id) == ["dead"]
    assert f"job {kids[0]} dead: boom" in (engine.job(id).error or "")


def test_a_retried_serial_child_takes_the_later_ones_along(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, *(child(max_attempts=1) for _ in range(4)), child_mode="serial")
    kids = [job.id for job in children(engine, id)]
    pool.succeed(pool.claim_one())
    pool.fail(pool.claim_one())
    with pytest.raises(Refused, match=f"retry {kids[1]} first"):
        engine.retry([kids[2]])
    engine.retry([kids[1]])
    assert states(engine, id, *kids) == ["waiting", "completed", "pending", "blocked", "blocked"]
    assert check_queue(engine) == []
    for kid in kids[1:]:
        (claim,) = pool.claim(9)
        assert claim.id == kid
        pool.succeed(claim)
    assert states(engine, id) == ["completed"]


def test_a_retried_serial_parent_goes_on_where_it_stopped(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, *(child(max_attempts=1) for _ in range(3)), child_mode="serial")
    kids = [job.id for job in children(engine, id)]
    pool.fail(pool.claim_one())
    engine.retry([id])
    assert states(engine, id, *kids) == ["waiting", "pending", "blocked", "blocked"]


def test_retry_again_copies_a_parent_without_its_children_and_a_child_as_a_job_of_its_own(
    engine: Engine, pool: HandPool
) -> None:
    (made,) = engine.enqueue([python_task("t", joins=True, on_error="collect", tree_timeout_s=60.0)])
    pool.spawn(pool.claim_one(), child("kid"))
    claim = pool.claim_one()
    pool.succeed(claim)
    pool.succeed(pool.claim_one())
    (copy,) = engine.retry([made.id], again=True)
    job = engine.job(copy.new_id)  # type: ignore[arg-type]
    assert (job.state, job.phase, job.children.total) == ("pending", "run", 0)
    assert pool.claim_one().joins == 1
    (copy,) = engine.retry([claim.id], again=True)
    job = engine.job(copy.new_id)  # type: ignore[arg-type]
    assert (job.parent_id, job.root_id, job.depth, job.command) == (None, job.id, 0, "kid")


def test_a_failed_child_may_be_tried_sooner(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(max_attempts=2))
    claim = pool.claim_one()
    pool.fail(claim)
    engine.retry([claim.id])
    assert states(engine, id, claim.id) == ["waiting", "pending"]
    assert engine.job(id).children.unfinished == 1


def test_removing_the_dead_does_not_wake_them(engine: Engine, pool: HandPool) -> None:
    id, _ = died(engine, pool)
    engine.remove([id])
    (other,) = engine.enqueue([command()])
    assert [claim.id for claim in pool.claim(9)] == [other.id]
