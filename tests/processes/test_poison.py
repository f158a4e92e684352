"""Jobs that kill their worker: charged for exactly what they started, their neighbours for nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.kit.running import Yard, gone

SOON: dict[str, Any] = {"backoff_base": 1.0, "backoff_cap_s": 0.0}

COMMAND = "echo x >>starts; kill -9 $PPID; sleep 100"


@pytest.mark.parametrize("how", ["command", "exit", "segv", "memory", "kill", "async"])
def test_a_job_that_kills_its_worker_is_dead_after_exactly_max_attempts_starts(yard: Yard, how: str) -> None:
    yard.pool(count=2)
    before = [*yard.shells(["true"] * 10), *yard.calls("add", [[1, 2]] * 20)]
    if how == "command":
        poison = yard.shell(COMMAND, max_attempts=3, **SOON)
    elif how == "async":
        poison = yard.call("adies", how, kind="async", max_attempts=3, **SOON)
    else:
        poison = yard.call("dies", how, max_attempts=3, **SOON)
    after = [*yard.shells(["true"] * 10), *yard.calls("add", [[1, 2]] * 200)]
    (job,) = yard.ends(poison)
    assert (job.state, job.attempts, len(yard.traces("starts"))) == ("dead", 3, 3), yard.describe(poison)
    assert (job.error or "").startswith("worker lost: ")
    assert {each.outcome for each in yard.engine.history(poison)} == {"worker_lost"}
    for sibling in yard.completes(*before, *after):
        assert (sibling.attempts, sibling.interruptions) == (1, 0), yard.describe(sibling.id)


def test_async_bystanders_of_a_crash_are_charged_once_and_complete(yard: Yard) -> None:
    """They had started in the process that died; nobody can tell who was to blame."""
    yard.pool(count=1)
    bystanders = yard.calls("meet", [["crowd", 11]] * 5, kind="async", max_attempts=5, **SOON)
    yard.trace("crowd", 5)
    poison = yard.call("adies", "exit", kind="async", max_attempts=1)
    (job,) = yard.ends(poison)
    assert (job.state, job.attempts) == ("dead", 1)
    (yard.home / "crowd").write_text("here\n" * 11)
    assert {each.attempts for each in yard.completes(*bystanders)} == {2}


def test_unstarted_jobs_in_a_dead_workers_socket_are_not_charged(yard: Yard) -> None:
    """Tiny tasks are claimed ahead; those behind the one that kills the worker never started."""
    yard.pool(count=1)
    yard.completes(*yard.calls("add", [[1, 2]] * 300))
    ids = yard.calls("add", [[1, 2]] * 400)
    poison = yard.call("dies", "exit", priority=5, max_attempts=2, **SOON)
    assert yard.ends(poison)[0].state == "dead"
    assert {each.attempts for each in yard.completes(*ids)} == {1}
    assert len(yard.traces("starts")) == 2


@pytest.mark.parametrize(("task", "kind"), [("rest", "sync"), ("arest", "async")])
def test_a_worker_killed_from_outside_costs_its_job_one_attempt_and_the_next_run_comes_soon(
    yard: Yard, task: str, kind: Any
) -> None:
    yard.pool(count=2).started()
    id = yard.call(task, 1000, kind=kind, **SOON)
    os.kill(int(yard.trace()[0]), 9)
    yard.trace(least=2, within_s=1.5)
    job = yard.job(id)
    assert (job.state, job.attempts, job.interruptions) == ("processing", 2, 0)
    assert yard.attempt(id).error == f"worker lost: {yard.attempt(id).worker} was killed by SIGKILL"


def test_a_killed_command_worker_takes_its_family_with_it_and_the_job_runs_again(yard: Yard) -> None:
    pool = yard.pool(count=1, commands_only=True).started()
    (worker,) = pool.workers()
    id = yard.shell("echo $$ >>pids; setsid sleep 1000 & echo $! >>pids; sleep 1000", **SOON)
    first = list(map(int, yard.trace("pids", 2)))
    os.kill(worker, 9)
    again = list(map(int, yard.trace("pids", 4, within_s=1.5)))[2:]
    assert gone(*first)
    assert not gone(*again)
    assert yard.job(id).attempts == 2
