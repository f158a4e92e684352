"""Workers that are replaced, a pool that goes with its parent, and the log file that tells of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.errors import InvalidInput
from covey.log import Log
from covey.pool import care
from covey.pool.care import Care, Parent
from covey.pool.workers import Workers
from covey.testing import until
from tests.kit.running import RunningPool, Yard, gone

from . import told

# ── recycled ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_worker_does_more_than_its_number_of_jobs_and_each_job_runs_once(
    yard: Yard, proof: Callable[[int, int], int]
) -> None:
    jobs = proof(20, 300)
    pool = yard.pool("--max-jobs", "3", count=2)
    ids = yard.shells([f"echo {n} $PPID >>command" for n in range(jobs)])
    ids += yard.calls("rest_in", [["sync", 0]] * jobs)
    ids += yard.calls("arest_in", [["async", 0.01]] * jobs, kind="async")
    for job in yard.completes(*ids, within_s=120):
        assert (job.attempts, job.interruptions) == (1, 0), yard.describe(job.id)
    assert sorted(int(line.split()[0]) for line in yard.traces("command")) == list(range(jobs))
    for kind in ("command", "sync", "async"):
        did = Counter(line.split()[-1] for line in yard.traces(kind))
        assert did.total() == jobs
        assert max(did.values()) <= 3, kind
    recycled = {event.worker: event.text for event in told.events(yard, "recycled")}
    assert {name.partition("-")[0] for name in recycled if name} == {"command", "sync", "async"}
    # One that was given three may have done fewer: what it has not begun is given to somebody who is idle.
    assert {(text or "")[:-6] for text in recycled.values()} == {"it has done its number of jobs; "}
    assert told.events(yard, "failed", "killed") == []
    assert pool.stop() == 0, pool.said()


def test_a_worker_above_its_memory_is_replaced_after_the_job_and_never_during_it(yard: Yard) -> None:
    pool = yard.pool("--max-memory", "100M", app="hoard:app", count=1)
    (small,) = yard.completes(yard.call("hoard.keep", 1))
    running = yard.call("hoard.keep_until", 150, "go")
    pid = int(yard.trace()[0])
    assert pid == small.result  # so far nobody was replaced
    until(lambda: told.workers(pool, "stopping"), 10, "it is seen to be too large")
    later = yard.call("hoard.keep", 1)
    assert (yard.job(running).state, gone(pid)) == ("processing", False)
    (yard.home / "go").touch()
    (job,) = yard.completes(running)
    assert (job.result, job.attempts, job.interruptions) == (pid, 1, 0)
    recycled = told.event(yard, "recycled")
    assert (recycled.worker, recycled.text) == ("sync-1", "its memory was above 100 MiB; 2 jobs")
    until(lambda: gone(pid), 5, "it is gone")
    (after,) = yard.completes(later)
    assert after.result != pid
    assert (after.attempts, after.interruptions) == (1, 0)


def test_an_idle_worker_above_its_memory_is_replaced_too(yard: Yard) -> None:
    yard.pool("--max-memory", "100M", app="hoard:app", count=1)
    (job,) = yard.completes(yard.call("hoard.keep", 150))
    told.event(yard, "recycled")
    (after,) = yard.completes(yard.call("hoard.keep", 1))
    assert after.result != job.result


@pytest.mark.parametrize("flags", [["--max-jobs", "0"], ["--max-memory", "much"], ["--max-memory", "1K"]])
def test_limits_that_make_no_sense_are_refused_in_one_line(yard: Yard, flags: list[str]) -> None:
    done = yard.run("worker", "start", *flags)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert (told.events(yard), told.logs(yard)) == ([], [])


# ── failed, killed ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crashed_worker_is_in_the_books_and_replaced(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    (dead,) = yard.ends(yard.call("dies", "kill", max_attempts=1))
    assert dead.state == "dead"
    failed = told.event(yard, "failed")
    assert (failed.worker, failed.text) == ("sync-1", "was killed by SIGKILL")
    yard.completes(yard.call("add", 1, 2))
    ready = [event.worker for event in told.events(yard, "ready")]
    assert "sync-2" in ready
    assert "worker sync-1 was killed by SIGKILL; it is replaced" in pool.said()


def test_a_worker_that_ignored_a_time_out_is_in_the_books_as_killed(yard: Yard) -> None:
    yard.pool(count=1).started()
    (job,) = yard.ends(yard.call("swallows_stop", 1000, timeout_s=0.2, max_attempts=1))
    assert (job.state, job.error) == ("dead", "timed out after 0.2 s")
    killed = told.event(yard, "killed")
    assert (killed.worker, killed.text) == ("sync-1", "was killed by SIGKILL")
    assert told.events(yard, "failed") == []
    yard.completes(yard.call("add", 1, 2))


# ── a parent to watch ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def parents() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Makes processes that a pool can watch."""
    made: list[subprocess.Popen[bytes]] = []

    def make() -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
        return made[-1]

    yield make
    for process in made:
        process.kill()
        process.wait()


def test_a_pool_goes_when_its_parent_has_gone_and_stays_as_long_as_that_lives(
    yard: Yard, parents: Callable[[], subprocess.Popen[bytes]]
) -> None:
    lives, dies = parents(), parents()
    stays = yard.pool("--parent-pid", str(lives.pid), "--queue", "stays", count=1, commands_only=True).started()
    goes = yard.pool("--parent-pid", str(dies.pid), "--queue", "goes", "--grace", "0.3", count=1, commands_only=True)
    id = yard.shell("echo $$ >>traces; trap '' TERM; while :; do sleep 0.1; done", queue="goes")
    pid = int(yard.trace()[0])
    dies.kill()  # nobody waits for it: a zombie is as good as gone
    assert goes.ended(5 + 0.3 + 10) == 1, goes.said()  # a job had to be killed, as after TERM
    assert gone(pid)
    assert (yard.job(id).state, yard.job(id).attempts) == ("pending", 0)
    assert "the parent process is gone" in goes.said()
    assert [event.pool for event in told.events(yard, "parent_died")] == [told.event(yard, "parent_died").pool]
    assert [view.pid for view in yard.engine.pool_views()] == [stays.pid]
    yard.completes(yard.shell("true", queue="stays"))  # it has looked before the other did


def test_a_pool_cannot_be_tied_to_a_process_that_is_not_there(yard: Yard) -> None:
    reaped = subprocess.Popen(["true"])
    reaped.wait()
    done = yard.run("worker", "start", "--parent-pid", str(reaped.pid))
    assert done.returncode == 2
    assert done.stderr == f"error: --parent-pid {reaped.pid}: no such process\n"
    assert (told.events(yard), yard.engine.pool_views()) == ([], [])


def fails(error: OSError) -> Callable[[int], int | None]:
    def read(pid: int) -> int | None:
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "is_gone"),
    [
        (lambda pid: 100, False),
        (lambda pid: 101, True),  # its pid is another's by now
        (lambda pid: None, True),
        (fails(PermissionError(13, "Permission denied")), False),
        (fails(OSError(24, "Too many open files")), False),
    ],
)
def test_a_parent_is_gone_only_if_that_is_certain(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[int], int | None], is_gone: bool
) -> None:
    monkeypatch.setattr(care, "read_ticks", lambda pid: 100)
    parent = Parent(4711)
    monkeypatch.setattr(care, "read_ticks", read)
    assert parent.is_gone() is is_gone


def test_a_parent_that_cannot_be_read_or_is_not_there_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(care, "read_ticks", lambda pid: None)
    with pytest.raises(InvalidInput, match="--parent-pid 4711: no such process"):
        Parent(4711)


def test_the_parent_is_looked_at_now_and_then(
    monkeypatch: pytest.MonkeyPatch, parents: Callable[[], subprocess.Popen[bytes]]
) -> None:
    process = parents()
    workers = Workers(Log("test"), lambda *_: None, limit=1, concurrency=1)
    seldom = Care(workers, Parent(process.pid), max_memory=None)
    monkeypatch.setattr(care, "PARENT_S", 0.0)
    often = Care(workers, Parent(process.pid), max_memory=None)
    assert not often.is_orphan()
    process.kill()
    until(often.is_orphan, 5, "its end is seen, although nobody waits for it")
    assert not seldom.is_orphan()  # it is not time
    assert seldom.at is not None
    assert 0 < seldom.at - time.monotonic() <= 5
    assert Care(workers, None, max_memory=None).at is None  # nothing to look at: no reason to wake up


# ── the log file ────────────────────────────────────────────────────────────────────────────────────────────────────


def log_of(pool: RunningPool) -> Path:
    """Its log file, as its row names it."""
    view = until(pool.view, 15, "it registers")
    assert view.log
    return Path(view.log)


def test_each_pool_has_a_log_file_with_what_it_says_and_what_its_app_says_before_the_first_job(yard: Yard) -> None:
    first = yard.pool("--name", "first", app="hoard:app", count=1).started()
    second = yard.pool(count=1, commands_only=True).started()
    assert told.logs(yard) == sorted([log_of(first), log_of(second)])
    assert log_of(first).name == "first.log"
    text = log_of(first).read_text()
    assert "the hoard is being imported\n" in text  # shared: imported once
    assert text.count("the hoard is being imported") == 1
    assert "the hoard" not in first.said()
    assert re.search(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info first ✓ started command-1 \(\d/3\)$", text, re.M)
    assert re.search(r" info first started 3/3 workers in [\d.]+s$", text, re.M)
    assert "started 1/1 workers" in log_of(second).read_text()
    assert "started 1/1 workers" not in text
    log = log_of(first)
    assert first.stop() == 0
    assert "stopped; 0 runs succeeded, 0 failed\n" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0  # what an app says may be nobody else's business


def test_what_a_worker_says_while_it_imports_for_itself_is_in_the_log_file(yard: Yard) -> None:
    (yard.home / "threaded.py").write_text(
        "import sys, threading\nfrom covey import Covey\napp = Covey()\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        # Each in one write: two workers import at the same time, and a print may be two.
        "sys.stderr.write('imported on stderr\\n')\nsys.stdout.write('imported on stdout\\n')\nsys.stdout.flush()\n"
    )
    pool = yard.pool(app="threaded:app", count=1).started()
    text = log_of(pool).read_text()
    for stream in ("stderr", "stdout"):
        assert text.count(f"imported on {stream}\n") == 3  # by the zygote, which must not keep it, and by two workers


@pytest.mark.parametrize(
    ("level", "flags", "aloud", "written"),
    [
        ("debug", [], {"debug", "info"}, {"debug", "info"}),
        ("info", ["--quiet"], set(), {"info"}),
        ("error", [], set(), set()),
    ],
)
def test_the_level_and_quiet_say_what_is_heard_and_what_is_written(
    yard: Yard, level: str, flags: list[str], aloud: set[str], written: set[str]
) -> None:
    pool = yard.pool(*flags, count=1, commands_only=True, environ={"COVEY_LOG": level})
    yard.ends(yard.shell("exit 3", max_attempts=1))
    told.shows(pool, 1)
    log = log_of(pool)
    assert pool.stop() == 0
    samples = {"info": "started 1/1 workers", "debug": "failure: exit code 3"}
    assert {sample for sample, words in samples.items() if words in pool.said()} == aloud
    assert {sample for sample, words in samples.items() if words in log.read_text()} == written


def test_a_place_where_no_log_can_be_written_does_not_stop_a_pool(yard: Yard) -> None:
    logs = Path(f"{yard.side}/logs")
    shutil.rmtree(logs, ignore_errors=True)
    logs.write_text("in the way")
    pool = yard.pool(count=1).started()
    assert (pool.view() or pytest.fail("no row")).log is None
    yard.completes(yard.shell("true"), yard.call("add", 1, 2))
    assert pool.stop() == 0, pool.said()


def test_log_files_that_nobody_wrote_to_for_a_month_are_removed_at_the_start(yard: Yard) -> None:
    logs = Path(f"{yard.side}/logs")
    logs.mkdir(parents=True)
    for name, days in (("old.log", 31), ("old.log.1", 400), ("recent.log", 29)):
        (logs / name).write_text("x\n")
        then = time.time() - days * 86400
        os.utime(logs / name, (then, then))
    (logs / "dangling").symlink_to("nowhere")  # what is no file of ours is no reason to have no log
    pool = yard.pool("--name", "new", count=1, commands_only=True).started()
    assert sorted(path.name for path in logs.iterdir()) == ["dangling", "new.log", "recent.log"]
    assert pool.stop() == 0
