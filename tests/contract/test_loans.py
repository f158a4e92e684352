"""Jobs on loan: one job for one worker that speaks plain HTTP, fenced and leased like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from covey.core.model import Claim, Output
from covey.engine.engine import Engine
from covey.engine.loans import GRACE_S, LATE_S
from covey.errors import LeaseLost, Refused
from covey.testing import FakeClock
from tests.kit import HandPool, command, python_task
from tests.kit.factories import child, pool_info

BEHIND = True  # a server lends; whoever borrows has endpoints of his own


def lend(engine: Engine, **fields: Any) -> tuple[int, Claim]:
    lent = engine.lend(pool_info("curl", count=1, host="http", pid=0, **fields))
    assert lent is not None
    return lent


def test_a_loan_is_a_pool_with_one_busy_worker(engine: Engine) -> None:
    ids = [made.id for made in engine.enqueue([command(), command()])]
    pool, claim = lend(engine)
    assert (claim.id, claim.attempt) == (ids[0], 1)
    assert [engine.job(id).state for id in ids] == ["processing", "pending"]
    (view,) = engine.pool_views()
    (worker,) = view.workers
    assert (view.id, view.held, worker.name, worker.state, worker.kind) == (pool, 1, "curl", "busy", "command")
    assert (worker.job_id, worker.fence) == (claim.id, claim.fence)
    assert worker.busy_since == worker.started_at is not None


def test_where_there_is_nothing_to_lend_no_pool_is_left(engine: Engine) -> None:
    engine.enqueue([command(queue="a"), python_task(queue="b")])
    assert engine.lend(pool_info("curl", queues=("b",), kinds=("command",))) is None
    assert engine.pool_views() == []
    _, claim = lend(engine, queues=("b",), kinds=("sync",))
    assert claim.queue == "b"


def test_a_settled_loan_leaves_the_job_ended_and_no_pool(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    engine.settle(claim.id, pool, claim.fence, "success", result="3")
    assert (engine.job(claim.id).state, engine.job(claim.id).result) == ("completed", 3)
    assert engine.pool_views() == []
    engine.settle(claim.id, pool, claim.fence, "success", result="3")  # told twice, it counts once


def test_a_job_that_was_on_loan_keeps_who_had_it(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    running = engine.job(claim.id)
    assert (running.worker, running.pool_name, running.host) == ("curl", "curl", "http")
    engine.settle(claim.id, pool, claim.fence, "failure", error="e")
    ended, (run,) = engine.job(claim.id), engine.history(claim.id)
    assert (
        (ended.worker, ended.pool_name, ended.host) == (run.worker, run.pool_name, run.host) == ("curl", "curl", "http")
    )


def test_a_failure_that_is_told_twice_counts_once_also_when_another_has_the_job(
    engine: Engine, clock: FakeClock
) -> None:
    engine.enqueue([command(max_attempts=3)])
    pool, claim = lend(engine)
    engine.settle(claim.id, pool, claim.fence, "failure", error="e")
    assert (engine.job(claim.id).state, engine.job(claim.id).error) == ("failed", "e")
    clock.advance(60)
    _, again = lend(engine)
    engine.settle(claim.id, pool, claim.fence, "failure", error="e")
    assert (again.attempt, engine.job(claim.id).state) == (2, "processing")


def test_who_has_lost_the_loan_can_neither_renew_nor_spawn_nor_settle(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    engine.reap(pool, engine.pools()[0].beat)
    _, again = lend(engine)
    assert again.id == claim.id
    for late in (
        lambda: engine.renew(claim.id, pool, claim.fence),
        lambda: engine.stage(claim.id, pool, claim.fence, [child()]),
        lambda: engine.settle(claim.id, pool, claim.fence, "success"),
    ):
        with pytest.raises(LeaseLost, match=f"job {claim.id} is not yours any more"):
            late()
    with pytest.raises(LeaseLost):
        engine.settle(999, pool, 1, "success")
    with pytest.raises(LeaseLost):
        engine.settle(again.id, pool, again.fence, "success")  # the run of somebody else
    assert (engine.job(claim.id).state, engine.job(claim.id).interruptions) == ("processing", 1)


@pytest.mark.parametrize("wrong", ["job", "pool", "fence"])
def test_a_loan_is_known_by_job_pool_and_fence(engine: Engine, wrong: str) -> None:
    engine.enqueue([command(), command()])
    pool, claim = lend(engine)
    other, second = lend(engine)
    told = {"job": claim.id, "pool": pool, "fence": claim.fence}
    told[wrong] = {"job": second.id, "pool": other, "fence": claim.fence + 1}[wrong]
    with pytest.raises(LeaseLost):
        engine.stage(**told, spawned=[child()])
    assert engine.renew(claim.id, pool, claim.fence) is None


def test_who_names_a_pool_that_is_no_loan_does_not_speak_for_it(engine: Engine) -> None:
    """A turn that does not list what its pool holds would hand that back, and then the pool would leave."""
    engine.enqueue([command() for _ in range(3)])
    pool = HandPool(engine)
    claims = pool.claim(2)
    waiting = engine.enqueue([command()])[0].id
    for job, fence in ((claims[0].id, claims[0].fence), (waiting, 0)):
        with pytest.raises(LeaseLost):
            engine.renew(job, pool.id, fence)
        with pytest.raises(LeaseLost):
            engine.stage(job, pool.id, fence, [child()])
        with pytest.raises(LeaseLost):
            engine.settle(job, pool.id, fence, "success")
        with pytest.raises(LeaseLost):
            engine.settle(job, pool.id, fence, "failure", error="e")
    assert [engine.job(claim.id).state for claim in claims] == ["processing"] * 2
    assert engine.job(waiting).state == "pending"
    assert not pool.beat(*claims).lost


def test_who_names_the_loan_of_another_does_not_end_it(engine: Engine) -> None:
    engine.enqueue([command(), command()])
    mine, other = lend(engine), lend(engine)
    for pool, claim in ((mine[0], other[1]), (other[0], mine[1])):
        with pytest.raises(LeaseLost):
            engine.settle(claim.id, pool, claim.fence, "success")
    engine.settle(mine[1].id, mine[0], mine[1].fence, "success")
    engine.settle(mine[1].id, other[0], mine[1].fence, "success")  # its own earlier report, as far as anybody can tell
    assert not engine.renew(other[1].id, other[0], other[1].fence)
    assert [engine.job(claim.id).state for _, claim in (mine, other)] == ["completed", "processing"]


def test_a_borrower_hears_of_a_cancel_and_says_when_it_has_stopped(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    assert engine.renew(claim.id, pool, claim.fence) is None
    engine.cancel([claim.id])
    assert engine.renew(claim.id, pool, claim.fence) == "cancelled"
    assert engine.job(claim.id).pool == pool
    engine.settle(claim.id, pool, claim.fence, "gone")
    assert (engine.job(claim.id).state, engine.job(claim.id).pool) == ("cancelled", None)
    assert engine.pool_views() == []


def test_a_renewed_loan_beats(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    before = engine.pools()[0].beat
    clock.advance(10)
    engine.renew(claim.id, pool, claim.fence)
    assert engine.pools()[0].beat > before
    assert engine.pool_views()[0].beat_age_s == 0


# ── what a run spawns ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_staged_comes_into_being_with_the_success(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    assert engine.stage(claim.id, pool, claim.fence, [child("a"), child("b")]) == 2
    assert engine.stage(claim.id, pool, claim.fence, [child("c")]) == 3
    assert engine.tree(claim.id).children == []
    engine.settle(claim.id, pool, claim.fence, "success")
    assert engine.job(claim.id).state == "waiting"
    assert [each.command for each in engine.tree(claim.id).children] == ["a", "b", "c"]
    assert engine.store.ask("staged", job=claim.id, fence=claim.fence) == []


def test_the_same_request_twice_stages_once_if_it_says_after_how_many(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    stage = lambda *lines, after=None: engine.stage(  # noqa: E731
        claim.id, pool, claim.fence, [child(line) for line in lines], after
    )
    assert stage("a", "b", after=0) == 2
    assert stage("a", "b", after=0) == 2
    assert stage("c", after=2) == 3
    assert stage("c", after=2) == 3
    assert stage("c") == 4
    assert stage(after=4) == 4
    for lines, after in ((("x",), 1), (("x",), 5), (("a", "b"), 0), ((), 2)):
        with pytest.raises(Refused, match="4 jobs of this run were spawned before"):
            stage(*lines, after=after)


def test_what_a_run_staged_that_did_not_succeed_is_forgotten(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    engine.stage(claim.id, pool, claim.fence, [child("a")])
    engine.settle(claim.id, pool, claim.fence, "failure", error="e")
    clock.advance(60)
    pool, claim = lend(engine)
    assert engine.stage(claim.id, pool, claim.fence, [child("b")]) == 1
    engine.settle(claim.id, pool, claim.fence, "success")
    assert [each.command for each in engine.tree(claim.id).children] == ["b"]


def test_what_a_lost_run_staged_is_forgotten_when_the_next_stages(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    engine.stage(claim.id, pool, claim.fence, [child("a")])
    engine.reap(pool, engine.pools()[0].beat)
    pool, again = lend(engine)
    engine.stage(again.id, pool, again.fence, [child("b")])
    assert engine.store.ask("staged", job=claim.id, fence=claim.fence) == []
    assert len(engine.store.ask("staged", job=claim.id, fence=again.fence)) == 1


VERBS: dict[str, Callable[[Engine, int, int, int], object]] = {
    "renew": lambda engine, *loan: engine.renew(*loan),
    "release": lambda engine, *loan: engine.release(*loan),
    "stage": lambda engine, *loan: engine.stage(*loan, [child()]),
    "success": lambda engine, *loan: engine.settle(*loan, "success"),
    "failure": lambda engine, *loan: engine.settle(*loan, "failure", error="e"),
    "gone": lambda engine, *loan: engine.settle(*loan, "gone"),
    "output": lambda engine, job, pool, fence: engine.show_output(pool, job, fence, "out", "err"),
}


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_request_with_another_fence_or_job_is_refused_and_changes_nothing(
    engine: Engine, verb: str, is_cancelled: bool
) -> None:
    """A slip of the borrower's must not hand his own job to somebody else."""
    engine.enqueue([command(max_attempts=5) for _ in range(2)])
    for _ in range(2):  # so that there are lower fences
        pool, claim = lend(engine)
        engine.reap(pool, engine.pools()[0].beat)
    pool, claim = lend(engine)
    assert claim.fence > 2
    if is_cancelled:
        engine.cancel([claim.id])
    before = engine.job(claim.id), engine.pools(), engine.store.ask("held_by", pool=pool)
    wrong = [(claim.id, claim.fence + step) for step in (-claim.fence, -3, -2, -1, 1, 2, 7)] + [(claim.id + 1, 1)]
    for job, fence in wrong:
        with pytest.raises(LeaseLost):
            VERBS[verb](engine, job, pool, fence)
    assert (engine.job(claim.id), engine.pools(), engine.store.ask("held_by", pool=pool)) == before
    assert engine.renew(claim.id, pool, claim.fence) == ("cancelled" if is_cancelled else None)


# ── handing back ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_loan_that_is_released_is_pending_again_at_no_cost_and_no_pool_is_left(engine: Engine) -> None:
    engine.enqueue([command(max_attempts=1)])
    pool, claim = lend(engine)
    engine.stage(claim.id, pool, claim.fence, [child("a")])
    engine.release(claim.id, pool, claim.fence)
    found = engine.job(claim.id)
    assert (found.state, found.attempts, found.interruptions, engine.pool_views()) == ("pending", 0, 0, [])
    for late in ("release", "renew", "success", "failure", "stage"):
        with pytest.raises(LeaseLost):
            VERBS[late](engine, claim.id, pool, claim.fence)
    pool, again = lend(engine)
    assert (again.id, again.attempt) == (claim.id, 1)
    engine.settle(again.id, pool, again.fence, "success")
    assert (engine.job(again.id).state, engine.tree(again.id).children) == ("completed", [])


def test_a_cancelled_loan_that_is_released_has_stopped(engine: Engine) -> None:
    engine.enqueue([command()])
    pool, claim = lend(engine)
    engine.cancel([claim.id])
    engine.release(claim.id, pool, claim.fence)
    assert (engine.job(claim.id).state, engine.job(claim.id).pool, engine.pool_views()) == ("cancelled", None, [])


# ── time-outs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_out_of_time_is_told_so_and_its_failure_is_a_time_out(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(timeout_s=2, max_attempts=2)])
    pool, claim = lend(engine)
    clock.advance(2)
    assert engine.renew(claim.id, pool, claim.fence) is None
    clock.advance(0.1)
    assert engine.renew(claim.id, pool, claim.fence) == "timed out after 2 s"
    assert engine.overdue_loans() == []  # he has a moment to end it and to say so
    for _ in range(2):  # told twice, it counts once
        engine.settle(claim.id, pool, claim.fence, "failure", error="exit code 143", detail="d", exit_code=143)
    found = engine.job(claim.id)
    assert (found.state, found.error, found.attempts, found.exit_code) == ("failed", "timed out after 2 s", 1, 143)
    assert engine.pool_views() == []


@pytest.mark.parametrize(("max_attempts", "state"), [(2, "failed"), (1, "dead")])
def test_a_success_that_comes_long_after_its_time_out_is_refused_for_good(
    engine: Engine, clock: FakeClock, max_attempts: int, state: str
) -> None:
    engine.enqueue([command(timeout_s=2, max_attempts=max_attempts)])
    pool, claim = lend(engine)
    engine.stage(claim.id, pool, claim.fence, [child("a")])
    clock.advance(2 + LATE_S + 0.1)
    output = Output(b"what it wrote")
    for _ in range(2):
        with pytest.raises(LeaseLost, match=f"job {claim.id}"):
            engine.settle(claim.id, pool, claim.fence, "success", result="3", output=output)
    found = engine.job(claim.id)
    assert (found.state, found.error, found.result, found.attempts) == (state, "timed out after 2 s", None, 1)
    assert [(each.error, each.stdout) for each in engine.history(claim.id)] == [
        ("timed out after 2 s", "what it wrote")
    ]
    assert (engine.tree(claim.id).children, engine.pool_views()) == ([], [])


def test_a_success_that_was_under_way_when_its_time_was_over_counts(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(timeout_s=2)])
    pool, claim = lend(engine)
    clock.advance(2 + LATE_S)
    engine.settle(claim.id, pool, claim.fence, "success", result="3")
    assert engine.job(claim.id).state == "completed"


def test_a_run_that_nobody_stops_is_ended_for_its_borrower(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(timeout_s=2, max_attempts=1), command(), command(timeout_s=9)])
    loans = [lend(engine) for _ in range(3)]
    (pool, claim), *others = loans
    clock.advance(2 + GRACE_S)
    assert engine.overdue_loans() == []
    clock.advance(0.1)
    (overdue,) = engine.overdue_loans()
    assert (overdue.job, overdue.pool, overdue.fence) == (claim.id, pool, claim.fence)
    for _ in range(2):
        engine.time_out(overdue)
    found = engine.job(claim.id)
    assert (found.state, found.error, found.attempts) == ("dead", "timed out after 2 s", 1)
    assert (engine.overdue_loans(), len(engine.pool_views())) == ([], 2)
    for late in VERBS:
        with pytest.raises(LeaseLost):
            VERBS[late](engine, claim.id, pool, claim.fence)
    assert engine.job(claim.id) == found
    for other, each in others:
        engine.settle(each.id, other, each.fence, "success")
        assert engine.job(each.id).state == "completed"


def test_a_run_that_was_timed_out_for_its_borrower_is_tried_again(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(timeout_s=2, max_attempts=2)])
    pool, claim = lend(engine)
    clock.advance(60)
    engine.time_out(engine.overdue_loans()[0])
    clock.advance(60)
    other, again = lend(engine)
    assert (again.id, again.attempt, again.fence > claim.fence) == (claim.id, 2, True)
    assert engine.overdue_loans() == []  # its time begins with its own start
    with pytest.raises(LeaseLost):
        engine.settle(claim.id, pool, claim.fence, "success")
    engine.settle(again.id, other, again.fence, "success")
    assert engine.job(claim.id).state == "completed"


def test_a_run_ends_with_the_time_of_its_tree(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(tree_timeout_s=5, timeout_s=60, max_attempts=1)])
    clock.advance(2)
    pool, claim = lend(engine)
    assert claim.timeout_s == 3
    clock.advance(3.1)
    assert engine.renew(claim.id, pool, claim.fence) == "timed out after 3 s"
    clock.advance(GRACE_S)
    engine.time_out(engine.overdue_loans()[0])
    assert (engine.job(claim.id).state, engine.job(claim.id).error) == ("dead", "timed out after 3 s")


def test_what_was_cancelled_does_not_time_out(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(timeout_s=2)])
    pool, claim = lend(engine)
    engine.cancel([claim.id])
    clock.advance(60)
    assert engine.overdue_loans() == []
    assert engine.renew(claim.id, pool, claim.fence) == "cancelled"
    engine.settle(claim.id, pool, claim.fence, "success")
    assert (engine.job(claim.id).state, engine.job(claim.id).error) == ("cancelled", None)
