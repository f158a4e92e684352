"""Python tasks as a pool runs them: sync ones one at a time, async ones many at a time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from covey.pool.workers import GIVE_UP
from covey.testing import until
from covey.worker.output import hollow_out
from tests.kit.running import RunningPool, Watch, Yard

SERVED = (
    "test_many_async_tasks_run_at_the_same_time_in_one_worker",
    "test_jobs_of_three_kinds_share_a_pool",
    "test_everything_a_sync_task_or_its_child_writes_is_captured",
)

BOTH = pytest.mark.parametrize(("prefix", "kind"), [("", "sync"), ("a", "async")])


def test_results_come_back_as_they_were(busy: Yard) -> None:
    value = {"text": "grüße 🐦", "list": [1, 2.5, None, True], "nested": {"deep": {"er": ""}}}
    ids = [busy.call("echo", value), busy.call("add", 20, 22)]
    assert [job.result for job in busy.completes(*ids)] == [value, 42]


def test_many_async_tasks_run_at_the_same_time_in_one_worker(yard: Yard) -> None:
    yard.pool(count=1)
    ids = yard.calls("meet", [["crowd", 40]] * 40, kind="async")
    jobs = yard.completes(*ids)
    assert {job.attempts for job in jobs} == {1}
    assert len({job.worker for job in jobs}) == 1


def test_more_async_tasks_than_places_wait_for_a_place(yard: Yard) -> None:
    yard.engine.set_setting("max_concurrency", "5")
    yard.pool(count=1)
    ids = yard.calls("meet", [["five", 5]] * 5 + [["ten", 5]] * 5 + [["more", 5]] * 5, kind="async")
    yard.completes(*ids)


def test_a_context_is_injected(busy: Yard) -> None:
    one, other = busy.call("about"), busy.call("aabout", kind="async", timeout_s=60.0)
    first, second = busy.completes(one, other)
    assert first.result == {"id": one, "attempt": 1, "max": 3, "task": "zoo.about", "queue": "default"}
    assert first.info == {"step": "looked"}
    assert second.result == {"id": other, "attempt": 1, "remaining": True}


def test_everything_a_sync_task_or_its_child_writes_is_captured(busy: Yard) -> None:
    (job,) = busy.completes(busy.call("speak", "hello"))
    attempt = busy.attempt(job.id)
    assert sorted(attempt.stdout.splitlines()) == ["child", "hello", "raw"]
    assert attempt.stderr == "HELLO\n"


def test_async_tasks_that_run_together_keep_their_output_apart(busy: Yard) -> None:
    words = [f"word-{n}" for n in range(20)]
    ids = busy.calls("aspeak", [[word] for word in words], kind="async")
    jobs = busy.completes(*ids)
    assert [job.result for job in jobs] == words
    for job, word in zip(jobs, words, strict=True):
        attempt = busy.attempt(job.id)
        assert (attempt.stdout, attempt.stderr) == (f"{word}\n", f"{word.upper()}\n")


@BOTH
def test_an_exception_is_a_failure_with_its_text_and_traceback(busy: Yard, prefix: str, kind: str) -> None:
    (job,) = busy.ends(busy.call(f"{prefix}fail", "so sad", kind=kind, max_attempts=1))  # type: ignore[arg-type]
    assert (job.state, job.error) == ("dead", "ValueError: so sad")
    assert "in " + prefix + "fail" in (busy.attempt(job.id).detail or "")


def test_a_failure_is_retried_after_its_back_off(busy: Yard) -> None:
    id = busy.call("fail", "boom", "late", max_attempts=3, backoff_base=1.0, backoff_cap_s=0.2)
    (job,) = busy.ends(id)
    times = [float(line) for line in busy.traces("late")]
    assert (job.state, job.attempts, len(times)) == ("dead", 3, 3)
    assert all(later - earlier >= 0.19 for earlier, later in pairwise(times))
    assert [attempt.number for attempt in busy.engine.history(id)] == [1, 2, 3]


def test_snooze_costs_no_attempt(busy: Yard) -> None:
    (job,) = busy.completes(busy.call("snooze_once", 0.3))
    first, second = map(float, busy.traces("snoozes"))
    assert (job.attempts, job.result) == (1, 2)
    assert 0.29 <= second - first < 2


def test_retry_says_when(busy: Yard) -> None:
    (job,) = busy.completes(busy.call("retry_soon", 0.1))
    assert (job.attempts, job.result) == (3, 3)
    times = [float(line) for line in busy.traces("retries")]
    assert all(0.09 <= later - earlier < 1.9 for earlier, later in pairwise(times))
    assert [attempt.error for attempt in busy.engine.history(job.id)] == ["not yet", "not yet"]


@BOTH
@pytest.mark.parametrize("what", ["timedelta", "text"])
def test_when_to_come_back_may_be_said_in_other_ways(busy: Yard, prefix: str, kind: Any, what: str) -> None:
    retried, snoozed = (
        busy.call(f"habits.{prefix}comes_back", f"{what}", snooze, kind=kind) for snooze in (False, True)
    )
    first, second = busy.completes(retried, snoozed)
    assert (first.attempts, second.attempts) == (2, 1)
    assert [attempt.error for attempt in busy.engine.history(retried)] == ["later"]


@BOTH
@pytest.mark.parametrize("what", ["word", "list", "endless"])
def test_to_come_back_after_what_is_no_time_fails_the_attempt_and_nothing_else(
    busy: Yard, the_pool: RunningPool, prefix: str, kind: Any, what: str
) -> None:
    workers = the_pool.workers()
    quick = {"kind": kind, "backoff_base": 1.0, "backoff_cap_s": 0.01}
    ids = [busy.call(f"habits.{prefix}comes_back", what, snooze, **quick) for snooze in (False, True)]
    assert [job.attempts for job in busy.completes(*ids)] == [2, 2]
    errors = [busy.engine.history(id)[0].error or "" for id in ids]
    assert errors[0].startswith("later; to come back after a ")
    assert all(error.endswith(": no number of seconds") for error in errors)
    assert the_pool.workers() == workers


@BOTH
def test_what_was_noted_is_what_it_was_when_it_was_noted(busy: Yard, prefix: str, kind: Any) -> None:
    (job,) = busy.completes(busy.call(f"habits.{prefix}changes_what_it_noted", kind=kind))
    assert (job.info, job.attempts) == ({"stats": {"step": 1}}, 1)


@BOTH
def test_a_worker_whose_words_cannot_be_read_is_replaced_and_the_pool_goes_on(
    yard: Yard, prefix: str, kind: Any
) -> None:
    pool = yard.pool(count=2).started()
    bystander = yard.call("hold", "go", 1)
    yard.trace("traces")
    (job,) = yard.ends(yard.call(f"habits.{prefix}garbles", kind=kind, max_attempts=1))
    assert job.state == "dead"
    assert "it said what cannot be read" in (job.error or "")
    (yard.home / "go").touch()
    yard.completes(bystander, yard.call("add", 1, 2), yard.call("aspeak", "x", kind="async"))
    assert pool.stop() == 0


def test_what_fails_after_a_coroutine_fails_its_job_and_leaves_the_place_free(yard: Yard) -> None:
    yard.engine.set_setting("max_concurrency", "1")
    yard.pool(count=1).started()
    (job,) = yard.ends(yard.call("habits.atrips_its_worker", kind="async", max_attempts=1), within_s=5)
    assert (job.state, job.error) == ("dead", "TypeError: 'NoneType' object is not callable")
    yard.completes(yard.call("arest", 0.3, kind="async"))


def test_a_job_that_an_async_worker_cannot_read_goes_back_and_runs_in_another(yard: Yard) -> None:
    yard.pool(count=1).started()
    yard.completes(yard.call("habits.acannot_read_the_next", kind="async"))
    (job,) = yard.completes(yard.call("aspeak", "x", kind="async"))
    assert (job.attempts, job.interruptions) == (1, 0)


def test_what_is_written_after_the_end_of_a_coroutine_leaves_nothing_open(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    yard.completes(yard.call("habits.awrites_after_its_end", kind="async"))
    yard.completes(yard.call("arest", 0.4, kind="async"))
    live = Path(yard.engine.store.dialect.side) / "live"
    shown = {os.readlink(f"/proc/{pid}/fd/{fd}") for pid in pool.workers() for fd in os.listdir(f"/proc/{pid}/fd")}
    assert not [path for path in shown if re.search(r"/live/\d+\.\d+\.out", path)]
    assert not list(live.glob("*.out"))


def test_a_task_that_detaches_its_streams_completes_and_a_fresh_worker_takes_over(yard: Yard) -> None:
    yard.pool(count=1).started()
    (job, *_) = yard.completes(*(yard.call("habits.detaches", max_attempts=1) for _ in range(2)))
    assert job.result == "fine"
    yard.completes(yard.call("speak", "on"))


def test_a_task_that_was_known_to_be_short_fills_no_disk_either(yard: Yard) -> None:
    """Its output is in a file without a name."""
    pool = yard.pool(count=1).started()
    yard.completes(*(yard.call("habits.writes_without_end", 40, "endless") for _ in range(20)))
    (yard.home / "endless").touch()
    id = yard.call("habits.writes_without_end", 40, "endless")
    (pid,) = map(int, yard.trace("written"))
    assert pid in pool.workers()
    until(lambda: os.stat(f"/proc/{pid}/fd/1").st_blocks * 512 < 10 << 20, 5, "its middle is a hole")
    (yard.home / "enough").touch()
    yard.completes(id)
    attempt = yard.attempt(id)
    assert len(attempt.stdout) < 2 << 20
    assert attempt.stdout_dropped > 30 << 20


def test_a_file_of_the_task_s_own_in_the_place_of_its_output_is_left_alone(tmp_path: Path) -> None:
    own, live = tmp_path / "own", tmp_path / "live"
    live.mkdir()
    own.write_bytes(b"x" * (12 << 20))
    (live / "1.1.out").write_bytes(b"x" * (12 << 20))
    for path, hollowed in ((own, False), (live / "1.1.out", True)):
        with open(path, "ab") as file, subprocess.Popen(["sleep", "60"], stdout=file) as process:
            hollow_out(str(live), process.pid)
            process.kill()
        assert (path.stat().st_blocks * 512 < 10 << 20) == hollowed


def test_jobs_that_break_their_workers_do_not_make_the_pool_give_up_on_the_kind(yard: Yard) -> None:
    yard.pool(count=GIVE_UP + 1).started()
    for job in yard.ends(*(yard.call("habits.breaks_its_worker", max_attempts=1) for _ in range(GIVE_UP + 1))):
        assert job.state == "dead"
        assert "'NoneType' object is not callable" in (job.error or "")
    yard.completes(yard.call("add", 1, 2))


def test_abort_buries_at_once(busy: Yard) -> None:
    (job,) = busy.ends(busy.call("abort", "no point"))
    assert (job.state, job.attempts, job.error) == ("dead", 1, "no point")


def test_sys_exit_in_a_task_fails_the_job_and_not_the_worker(busy: Yard) -> None:
    (job,) = busy.ends(busy.call("exits", 0, max_attempts=1))
    assert (job.state, job.error) == ("dead", "the task called sys.exit(0)")


@BOTH
def test_an_unknown_task_is_dead_and_says_what_there_is(busy: Yard, prefix: str, kind: str) -> None:
    (job,) = busy.ends(busy.call("zoo.dodo", kind=kind))  # type: ignore[arg-type]
    assert (job.state, job.attempts) == ("dead", 1)
    assert job.error
    assert job.error.startswith("unknown task 'zoo.dodo'; this worker's app has habits.acannot_read_the_next, ")
    assert ", zoo.aabout, " in job.error


@pytest.mark.parametrize("name", ["object", "set", "keys", "big", "deep", "nan", "surrogate"])
def test_a_result_that_cannot_be_stored_ends_dead_with_a_reason(busy: Yard, name: str) -> None:
    (job,) = busy.ends(busy.call("odd_result", name))
    assert (job.state, job.attempts, job.result) == ("dead", 1, None)
    assert (job.error or "").startswith("the result")


@pytest.mark.parametrize("name", ["nul", "emoji"])
def test_an_odd_but_storable_result_comes_back(busy: Yard, name: str) -> None:
    (job,) = busy.completes(busy.call("odd_result", name))
    assert job.result == {"nul": "a\x00b", "emoji": "🐦"}[name]


@pytest.mark.parametrize("name", ["nan", "surrogate", "object"])
def test_the_same_holds_for_async_tasks(busy: Yard, name: str) -> None:
    ids = busy.call("aodd_result", name, kind="async"), busy.call("aodd_error", name, kind="async", max_attempts=1)
    assert [job.state for job in busy.ends(*ids)] == ["dead", "dead"]


@pytest.mark.parametrize("name", ["nul", "surrogate", "nan", "object", "emoji", "mebi", "silent"])
def test_an_error_with_any_text_ends_terminal(busy: Yard, name: str) -> None:
    (job,) = busy.ends(busy.call("odd_error", name, max_attempts=1))
    assert job.state == "dead"
    assert job.error
    assert "\x00" not in job.error
    assert busy.run("show", str(job.id), "--json").returncode == 0


@pytest.mark.parametrize("name", ["nul", "surrogate", "utf8"])
def test_output_that_is_no_text_ends_terminal(busy: Yard, name: str) -> None:
    (job,) = busy.completes(busy.call("odd_output", name))
    assert "\ufffd" in busy.attempt(job.id).stdout


@pytest.mark.same_disk
def test_output_of_a_sync_task_can_be_followed_once_it_is_known_to_take_long(busy: Yard) -> None:
    """Tiny jobs are not worth a file: the pool learns by the first long run of a task."""
    busy.completes(busy.call("print_and_wait", "none"))
    id = busy.call("print_and_wait", "go")
    live = Path(f"{busy.side}/live/{id}.{busy.runs(id).fence}.out")
    until(lambda: live.exists() and live.read_text() == "waiting\n", 5, "live output")
    (busy.home / "go").touch()
    busy.completes(id)
    assert busy.attempt(id).stdout == "waiting\ndone\n"
    until(lambda: not live.exists(), 2, "the live file is gone")


def test_a_thousand_small_tasks_complete_once_each(busy: Yard) -> None:
    ids = busy.calls("trace_in", [["thousand", n] for n in range(1000)])
    jobs = busy.completes(*ids, within_s=30)
    assert {job.attempts for job in jobs} == {1}
    assert sorted(map(int, busy.traces("thousand"))) == list(range(1000))


def test_jobs_of_three_kinds_share_a_pool(busy: Yard) -> None:
    watch = Watch()
    ids = [*busy.shells(["true"] * 10), *busy.calls("add", [[1, 2]] * 10)]
    ids += busy.calls("aspeak", [["x"]] * 10, kind="async")
    busy.completes(*ids)
    assert watch.within(10)


@pytest.mark.parametrize("what", ["descriptor", "stream", "both", "pipe", "replaced"])
def test_a_task_may_close_its_streams_and_the_next_one_can_still_write(yard: Yard, what: str) -> None:
    yard.pool(count=1)
    (job,) = yard.completes(yard.call("closes", what))
    assert job.attempts == 1
    for word in ("hello", "again"):
        (job,) = yard.completes(yard.call("speak", word))
        attempt = yard.attempt(job.id)
        assert sorted(attempt.stdout.splitlines()) == sorted(["child", word, "raw"])
        assert attempt.stderr == f"{word.upper()}\n"


@BOTH
def test_a_task_that_forks_and_returns_twice_completes_once(yard: Yard, prefix: str, kind: Any) -> None:
    pool = yard.pool(count=1).started()
    before = len(pool.workers())
    ids = yard.calls(f"{prefix}forks", [[]] * 5, kind=kind)
    for job in yard.completes(*ids):
        assert (job.attempts, job.result) == (1, "parent")
    until(lambda: len(pool.processes()) == before + 3, 5, "only the pool, guard, zygote and its workers are left")
    yard.completes(yard.call("add", 1, 2))


def test_jobs_run_when_there_is_no_place_to_show_their_output(yard: Yard) -> None:
    yard.pool(count=1).started()
    shutil.rmtree(f"{yard.side}/live")
    ids = [yard.shell("echo hello"), yard.call("speak", "hello"), yard.call("aspeak", "hello", kind="async")]
    yard.completes(*ids)
    for id in ids:
        assert "hello" in yard.attempt(id).stdout
