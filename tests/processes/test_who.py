"""What a real pool tells of its jobs: who ran them, how many, a line for each, what they say of themselves."""

from __future__ import annotations

import os
import re
import signal

import pytest

from covey.core.view import JobView
from covey.env import hostname
from covey.testing import until
from tests.kit.running import RunningPool, Yard

STORES = ("file", "postgres")
SERVED = (
    "test_an_ended_job_keeps_which_worker_of_which_pool_ran_it_on_which_host",
    "test_what_workers_have_done_is_shown_long_before_the_next_beat",
)


def who(job: JobView) -> tuple[str | None, str | None, str | None]:
    return job.worker, job.pool_name, job.host


def test_an_ended_job_keeps_which_worker_of_which_pool_ran_it_on_which_host(yard: Yard) -> None:
    pool = yard.pool("--name", "my pool @ home", count=1).started()
    here = "my pool @ home", hostname()
    lost = yard.call("dies", "kill", max_attempts=1)
    command, sync, coroutine = (
        yard.shell("exit 3", max_attempts=1),
        yard.call("add", 1, 2),
        yard.call("aabout", kind="async"),
    )
    jobs = yard.ends(command, sync, coroutine, lost)
    assert [job.pool_name for job in jobs] == [here[0]] * 4
    assert (who(jobs[0]), who(jobs[2]), who(jobs[3])) == (("command-1", *here), ("async-1", *here), ("sync-1", *here))
    assert who(jobs[1])[0] in ("sync-1", "sync-2")
    (run,) = yard.engine.history(command)
    assert (run.worker, run.pool_name, run.host) == ("command-1", *here)
    pool.stop()
    assert who(yard.job(command)) == ("command-1", *here)
    shown = yard.run("show", str(command)).stdout
    assert re.search(rf"worker +command-1 of pool {here[0]} on {here[1]}\n", shown), shown


def counted(pool: RunningPool) -> tuple[int, int]:
    """(done, failed) as `worker list` shows them."""
    view = pool.view()
    assert view is not None
    return sum(worker.done for worker in view.workers), sum(worker.failed for worker in view.workers)


def test_what_workers_have_done_is_shown_long_before_the_next_beat(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    done = failed = 0
    for job in ("exit 3", "true", ["echo", 500], "true", ["echo", 20]):
        # Each begins right after the last was counted. A beat, 5 s apart, would come too late for all but the first.
        if isinstance(job, str):
            yard.ends(yard.shell(job, max_attempts=1))
            done, failed = done + 1, failed + (job == "exit 3")
        else:
            yard.ends(*yard.calls(job[0], [[n] for n in range(job[1])]))
            done += job[1]
        until(lambda wanted=(done, failed): counted(pool) == wanted, 4, f"{done} and {failed} are counted")


def test_debug_says_each_job_that_is_given_to_a_worker_and_each_that_ends(yard: Yard) -> None:
    pool = yard.pool(count=1, environ={"COVEY_LOG": "debug"}).started()
    fine, bad = yard.shell("echo hi", key="k"), yard.shell("exit 3", max_attempts=1, env={"TOKEN": "s3cret"})
    lost = yard.call("dies", "kill", max_attempts=1)
    tiny = yard.calls("echo", [[n] for n in range(300)])
    yard.ends(fine, bad, lost, *tiny)
    until(lambda: f"job {tiny[-1]} has ended" in pool.said(), 10, "the last line")
    said = pool.said()
    assert f"job {fine} is given to command-1 (attempt 1 of 3): k: echo hi\n" in said
    assert re.search(rf"job {fine} has ended on command-1 after \d+\.\d{{3}} s: success\n", said)
    assert re.search(rf"job {bad} has ended on command-1 after \d+\.\d{{3}} s: failure: exit code 3\n", said)
    assert re.search(rf"job {lost} has ended: worker_lost: worker lost: sync-1 was killed by SIGKILL", said)
    for id in tiny:
        assert len(re.findall(rf"job {id} has ended on sync-\d+ after .*: success", said)) == 1
        assert f"job {id} is given to sync-" in said
    assert "s3cret" not in said


def test_without_debug_nothing_is_said_of_jobs_that_go_well(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    yard.completes(yard.shell("true"))
    assert pool.stop() == 0
    assert " is given to " not in pool.said()
    assert " has ended" not in pool.said()


@pytest.mark.same_disk
@pytest.mark.parametrize(("task", "kind"), [("says", "sync"), ("asays", "async")])
def test_what_a_task_says_of_itself_is_seen_while_it_runs(yard: Yard, task: str, kind: str) -> None:
    yard.pool(count=1)
    id = yard.call(task, "go", kind=kind)
    until(lambda: yard.job(id).info == {"step": "second", "rows": 7}, 15, "the running job shows it")
    shown = yard.run("show", str(id))
    assert re.search(r'info +step = "second"\n +rows = 7\n', shown.stdout), shown
    (yard.home / "go").touch()
    (job,) = yard.completes(id)
    assert job.info == {"step": "last", "rows": 7}
    assert [name for name in os.listdir(f"{yard.side}/live") if name.endswith(".info")] == []


@pytest.mark.same_disk
def test_nothing_is_left_of_what_a_killed_worker_has_said_of_itself(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    id = yard.call("says", "go", max_attempts=1)
    until(lambda: yard.job(id).info, 15, "the running job shows it")
    os.kill(pool.worker_of(id), signal.SIGKILL)
    yard.ends(id)
    assert [name for name in os.listdir(f"{yard.side}/live") if name.endswith(".info")] == []
