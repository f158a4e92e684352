"""Time-outs and cancels: the family ends, the job is in the right state, nobody else is hit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from covey.core.view import JobView
from covey.testing import until
from tests.kit.running import RunningPool, Watch, Yard, gone

SERVED = (
    "test_a_running_job_that_is_cancelled_stops_and_can_be_retried",
    "test_a_time_out_is_a_failure_like_any_other_and_is_retried",
    "test_a_full_pool_hears_of_a_cancel_and_of_what_is_due_before_its_next_beat",
)

KINDS = pytest.mark.parametrize("kind", ["command", "sync", "async"])


def long_one(yard: Yard, kind: Any, name: str, **options: Any) -> int:
    """A job of that kind that runs for ever; its pid comes into the file."""
    if kind == "command":
        return yard.shell(f"echo $$ >>{name}; sleep 1000", **options)
    return yard.call("rest_in" if kind == "sync" else "arest_in", name, 1000, kind=kind, **options)


def run_time_s(job: JobView) -> float:
    began, ended = (datetime.fromisoformat(at or "") for at in (job.started_at, job.finished_at))
    return (ended - began).total_seconds()


# ── time-outs ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit_s", [0.2, 0.9, 2.5])
def test_a_time_out_is_honoured_to_within_a_third_of_a_second(yard: Yard, limit_s: float) -> None:
    yard.pool(count=3).started()
    ids = [long_one(yard, kind, kind, timeout_s=limit_s, max_attempts=1) for kind in ("command", "sync", "async")]
    for job in yard.ends(*ids):
        assert (job.state, job.error) == ("dead", f"timed out after {limit_s:g} s")
        assert abs(run_time_s(job) - limit_s) <= 0.3, job.kind


def test_a_short_time_out_is_kept_while_a_long_job_runs_beside_it(yard: Yard) -> None:
    """The pool sleeps until the long job must be looked at; the short one may not wait for that."""
    yard.pool(count=2).started()
    yard.shell("echo up >>traces; sleep 1000")
    yard.trace()
    for _ in range(5):
        (job,) = yard.ends(yard.shell("sleep 1000", timeout_s=0.1, max_attempts=1))
        assert run_time_s(job) < 0.1 + 0.3, job.error


def test_a_time_out_is_a_failure_like_any_other_and_is_retried(busy: Yard) -> None:
    id = busy.shell(
        "test -e again && exit 0; touch again; sleep 100", timeout_s=0.2, backoff_base=1.0, backoff_cap_s=0.0
    )
    (job,) = busy.completes(id)
    assert job.attempts == 2
    assert busy.engine.history(id)[0].error == "timed out after 0.2 s"


def test_a_python_task_that_ignores_its_stop_costs_the_worker_its_life_and_bystanders_nothing(yard: Yard) -> None:
    pool = yard.pool(count=2).started()
    bystander = yard.call("arest_in", "bystander", 1000, kind="async")
    beside = int(yard.trace("bystander")[0])
    watch = Watch()
    sync = yard.call("swallows_stop", 1000, timeout_s=0.2, max_attempts=1)
    deaf = yard.calls("asleeps_deaf", [[1000]] * 2, kind="async", timeout_s=0.2, max_attempts=1)
    workers = set(map(int, yard.trace("swallows", 3)))
    for job in yard.ends(sync, *deaf):
        assert (job.state, job.error) == ("dead", "timed out after 0.2 s")
    assert watch.s >= 0.2 + 5
    assert watch.within(0.2 + 5 + 3)
    assert gone(*workers)
    assert len(yard.traces("swallowed")) >= 3
    assert beside in workers  # two deaf tasks on two workers: one of them has the bystander
    yard.trace("bystander", 2)
    job = yard.job(bystander)
    assert (job.state, job.attempts, job.interruptions) == ("processing", 1, 0)
    yard.completes(yard.call("add", 1, 2), yard.call("aspeak", "x", kind="async"))
    assert pool.process.poll() is None


# ── cancels ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def let_go(yard: Yard, id: int, within_s: float = 5) -> JobView:
    """The job, once it is cancelled and no pool holds it any more."""

    def look() -> JobView | None:
        view = yard.job(id)
        return view if view.state == "cancelled" and view.pool is None else None

    return until(look, within_s, f"cancelled and let go: {yard.describe(id)}")


@KINDS
def test_a_running_job_that_is_cancelled_stops_and_can_be_retried(busy: Yard, kind: str) -> None:
    name = f"cancel-{kind}"
    id = long_one(busy, kind, name)
    pid = int(busy.trace(name)[0])
    busy.engine.cancel([id])
    job = let_go(busy, id)
    assert (job.attempts, job.error) == (1, None)
    if kind == "command":
        assert gone(pid)
    assert busy.attempt(id).outcome == "cancelled"
    busy.engine.retry([id])
    busy.trace(name, 2)
    assert busy.job(id).attempts == 1
    busy.engine.cancel([id])
    let_go(busy, id)


@pytest.mark.parametrize("how", ["cancel", "timeout", "shutdown"])
def test_a_sync_task_that_is_stopped_leaves_no_child_behind(yard: Yard, how: str) -> None:
    pool = yard.pool("--grace", "0", count=1).started()
    id = yard.call("waits_as_a_child", "child", timeout_s=0.5 if how == "timeout" else None, max_attempts=1)
    child = yard.pid_in("child")
    if how == "cancel":
        yard.engine.cancel([id])
        let_go(yard, id, 8)
    elif how == "timeout":
        assert yard.ends(id)[0].error == "timed out after 0.5 s"
    else:
        pool.send(signal.SIGTERM)
        yard.is_in(id, "pending")
    assert gone(child, *yard.of_job(id))
    if how != "shutdown":
        yard.completes(yard.call("add", 1, 2))


def test_one_async_task_of_many_is_cancelled_and_the_others_stay(busy: Yard) -> None:
    ids = busy.calls("arest_in", [["many", 1000]] * 5, kind="async")
    busy.trace("many", 5)
    busy.engine.cancel([ids[2]])
    let_go(busy, ids[2])
    assert [busy.job(id).state for id in ids] == ["processing", "processing", "cancelled", "processing", "processing"]
    busy.engine.cancel([id for id in ids if id != ids[2]])
    for id in ids:
        let_go(busy, id)
    assert len(busy.traces("many")) == 5


def test_a_stray_term_to_a_worker_stops_no_job(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    ids = [yard.shell("while ! test -e go; do sleep 0.02; done"), yard.call("meet", "crowd", 2, kind="async")]
    yard.trace("crowd")
    for worker in pool.workers():
        os.kill(worker, signal.SIGTERM)
    (yard.home / "go").touch()
    (yard.home / "crowd").write_text("here\nhere\n")
    assert {job.attempts for job in yard.completes(*ids)} == {1}


def test_a_cancel_right_after_the_start_never_hits_the_pool(
    busy: Yard, the_pool: RunningPool, proof: Callable[[int, int], int]
) -> None:
    rounds = proof(50, 1000)
    workers = set(the_pool.workers())
    for kind in ("command", "sync", "async"):
        for _ in range(rounds // (1 if kind == "command" else 5)):
            id = busy.shell("sleep 1000") if kind == "command" else long_one(busy, kind, "soon")
            busy.runs(id)
            busy.engine.cancel([id])
            let_go(busy, id)
    assert the_pool.process.poll() is None
    assert workers <= set(the_pool.workers())


def test_a_cancel_that_races_with_the_end_leaves_the_job_ended_and_free(
    busy: Yard, proof: Callable[[int, int], int]
) -> None:
    for _ in range(proof(20, 500)):
        id = busy.shell("true")
        busy.is_in(id, "processing", "completed")
        try:
            busy.engine.cancel([id])
        except Exception:
            assert busy.job(id).state == "completed"
            continue
        let_go(busy, id)
    busy.completes(busy.shell("true"))


def test_a_full_pool_hears_of_a_cancel_and_of_what_is_due_before_its_next_beat(yard: Yard) -> None:
    yard.pool(count=1, commands_only=True).started()
    long = yard.shell("sleep 60")
    yard.runs(long)
    due = yard.shell("true", delay_s=0.3)
    watch = Watch()
    yard.is_in(due, "pending", within_s=3)
    assert watch.within(2)
    watch = Watch()
    yard.engine.cancel([long])
    until(lambda: yard.job(long).pool is None, 10, "its processes are gone")
    assert watch.within(2)
    yard.completes(due)
