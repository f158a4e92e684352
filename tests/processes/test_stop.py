"""Starting and stopping a pool: signals at any moment, running jobs finish or are handed back."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable

import pytest

from covey.testing import until
from tests.kit.running import Watch, Yard, gone

from . import told

# ── start ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["pool.before_register", "pool.after_register", "pool.started"])
def test_a_signal_during_start_up_ends_the_pool_and_nothing_is_claimed(
    yard: Yard, where: str, number: signal.Signals
) -> None:
    id = yard.shell("echo started >>traces")
    pool = yard.pool(count=2, failpoints={where: f"once:{yard.home}/here:sleep:0.5"})
    until(lambda: (yard.home / "here").exists(), 15, "the failpoint is reached")
    pool.send(number)
    assert pool.ended(5) == 0, pool.said()
    job = yard.job(id)
    assert (job.state, job.attempts, job.interruptions, yard.traces()) == ("pending", 0, 0, [])
    assert yard.engine.pool_views() == []


def test_a_signal_while_the_app_is_imported_ends_the_pool(yard: Yard) -> None:
    (yard.home / "slow.py").write_text(
        "import pathlib, time\nfrom covey import Covey\napp = Covey()\n"
        "pathlib.Path('importing').touch()\ntime.sleep(60)\n"
    )
    pool = yard.pool(app="slow:app")
    until(lambda: (yard.home / "importing").exists(), 15, "the import begins")
    pool.send(signal.SIGTERM)
    assert pool.ended(5) == 0
    assert yard.engine.pool_views() == []


@pytest.mark.parametrize("words", [["--help"], ["--no-such-flag"], ["--count", "0"], ["--app", "nonsense"], ["stray"]])
def test_help_and_wrong_usage_never_start_a_pool(yard: Yard, words: list[str]) -> None:
    id = yard.shell("echo started >>traces")
    done = yard.run("worker", "start", *words)
    assert done.returncode == (0 if words == ["--help"] else 2), done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert (yard.job(id).attempts, yard.engine.events(), yard.traces()) == (0, [], [])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = 1\nimport no_such_module", "ModuleNotFoundError: No module named 'no_such_module' ({0}, line 2)"),
        ("1 / 0", "ZeroDivisionError: division by zero ({0}, line 1)"),
        ("\n\ndef f(:\n    pass", "SyntaxError: invalid syntax ({0}, line 3)"),
        ("raise ValueError('one\\ntwo')", "ValueError: one two ({0}, line 1)"),
        ("import os; os._exit(3)", "the import ended the process (exit code 3)"),
        ("import sys; sys.exit('nope')", "SystemExit: nope ({0}, line 1)"),
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 29,) * 2)\nbytearray(1 << 30)",
            "MemoryError ({0}, line 3)",
        ),
    ],
)
def test_an_app_that_breaks_on_import_ends_the_pool_with_one_line_that_says_where(
    yard: Yard, code: str, reason: str
) -> None:
    (yard.home / "broken.py").write_text(code)
    pool = yard.pool(app="broken:app")
    assert pool.ended() == 2, pool.said()
    assert pool.said() == f"error: cannot import the app 'broken:app': {reason.format(yard.home / 'broken.py')}\n"
    assert (yard.engine.pool_views(), told.events(yard), yard.leftovers()) == ([], [], [])


@pytest.mark.parametrize(("code", "reason"), [("app = 7", "is not a Covey app"), ("", "app")])
def test_an_app_that_is_not_there_ends_the_pool_with_one_line(yard: Yard, code: str, reason: str) -> None:
    (yard.home / "broken.py").write_text(code)
    pool = yard.pool(app="broken:app")
    assert pool.ended() not in (0, None)
    assert reason in pool.said()
    assert "Traceback" not in pool.said()
    assert yard.engine.pool_views() == []


def test_a_pool_whose_workers_cannot_start_gives_up_and_says_so(yard: Yard) -> None:
    pool = yard.pool(commands_only=True, failpoints={"worker.starting": "raise"})
    assert pool.ended(30) == 1, pool.said()
    assert "failpoint worker.starting" in pool.said()
    assert yard.engine.pool_views() == []


def test_an_app_that_starts_threads_is_imported_by_each_worker(yard: Yard) -> None:
    (yard.home / "threaded.py").write_text(
        "import threading\nfrom covey import Covey\napp = Covey()\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "@app.task\ndef count() -> int:\n    return threading.active_count()\n"
    )
    pool = yard.pool(app="threaded:app", count=1)
    (job,) = yard.completes(yard.call("threaded.count"))
    assert job.result >= 2
    assert "importing threaded:app started threads" in pool.said()


# ── stop ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopping_pool_claims_nothing_beats_on_and_lets_running_jobs_finish(
    make_yard: Callable[..., Yard], number: signal.Signals
) -> None:
    yard = make_yard(heartbeat_seconds=0.2, lock_lease_seconds=1)
    pool = yard.pool(count=2)
    ids = yard.calls("hold", [["go", 1], ["go", 2]])
    yard.trace(least=2)
    pool.send(number)
    until(lambda: "no new jobs are taken; waiting for job" in pool.said(), 0.5, "it says what it waits for")
    late = [yard.shell("echo late >>late"), yard.call("trace_in", "late", "x"), yard.call("arest", 0, kind="async")]
    view = pool.view()
    assert view
    first = next(p.beat for p in yard.engine.pools() if p.id == view.id)
    until(lambda: next(p.beat for p in yard.engine.pools() if p.id == view.id) >= first + 3, 5, "it beats on")
    assert [yard.job(id).state for id in late] == ["pending"] * 3
    assert [yard.job(id).attempts for id in late] == [0] * 3
    (yard.home / "go").touch()
    assert pool.ended() == 0
    assert [(yard.job(id).state, yard.job(id).attempts) for id in ids] == [("completed", 1)] * 2
    assert yard.traces("late") == []


def test_an_idle_pool_stops_at_once(yard: Yard) -> None:
    pool = yard.pool(count=4).started()
    watch = Watch()
    assert pool.stop() == 0
    assert watch.within(1.5)
    assert yard.engine.pool_views() == []


@pytest.mark.parametrize("kind", ["command", "sync", "async"])
def test_after_the_grace_the_family_is_killed_and_another_pool_starts_the_job(yard: Yard, kind: str) -> None:
    first = yard.pool("--grace", "0.3", count=1).started()
    if kind == "command":
        id = yard.shell("trap '' TERM; echo $$ >>traces; while :; do sleep 0.1; done")
    else:
        id = yard.call("rest" if kind == "sync" else "arest", 1000, kind=kind)  # type: ignore[arg-type]
    pid = int(yard.trace()[0])
    second = yard.pool("--grace", "0", count=1).started()
    first.send(signal.SIGTERM)
    assert first.ended(5) == 1, first.said()
    assert gone(pid)
    yard.trace(least=2, within_s=2)
    job = yard.job(id)
    assert (job.state, job.attempts, job.interruptions) == ("processing", 1, 0)
    assert job.pool == second.id


def test_a_second_signal_means_now(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    id = yard.shell("echo $$ >>traces; sleep 1000")
    pid = yard.pid_in("traces")
    pool.send(signal.SIGINT)
    until(lambda: "waiting for job" in pool.said(), 2, "it drains")
    assert not gone(pid)
    watch = Watch()
    pool.send(signal.SIGINT)
    assert pool.ended(5) == 1
    assert watch.within(2.5)
    assert gone(pid)
    assert (yard.job(id).state, yard.job(id).attempts) == ("pending", 0)


def test_what_was_claimed_ahead_goes_back_uncharged_when_the_pool_stops(yard: Yard) -> None:
    pool = yard.pool(count=1)
    yard.completes(*yard.calls("add", [[1, 2]] * 300))  # now the pool knows that these are short
    yard.call("hold", "go", 0, priority=1)
    yard.trace()
    ids = yard.calls("add", [[1, 2]] * 100)
    pool.send(signal.SIGTERM)
    (yard.home / "go").touch()
    assert pool.ended() == 0
    for id in ids:
        job = yard.job(id)
        assert (job.state, job.attempts, job.interruptions) in (("pending", 0, 0), ("completed", 1, 0))


def test_ctrl_c_does_not_reach_the_job(yard: Yard) -> None:
    pool = yard.pool(count=1)
    id = yard.shell("trap 'echo hit >>hit' INT; echo up >>traces; while ! test -e go; do sleep 0.05; done")
    yard.trace()
    os.killpg(pool.pid, signal.SIGINT)  # as a terminal does it: to the whole foreground group
    until(lambda: "waiting for job" in pool.said(), 2, "it drains")
    (yard.home / "go").touch()
    assert pool.ended() == 0
    assert (yard.job(id).state, yard.traces("hit")) == ("completed", [])


def test_worker_stop_drains_the_pools_of_this_queue_only(make_yard: Callable[..., Yard]) -> None:
    yard, other = make_yard(), make_yard()
    pools = [yard.pool(count=1), yard.pool(count=1)]
    stranger = other.pool(count=1).started()
    for pool in pools:
        pool.started()
    id = yard.shell("echo $$ >>traces; sleep 0.5")
    yard.trace()
    done = yard.run("worker", "stop")
    assert done.returncode == 0, done.stderr
    assert [pool.ended(1) for pool in pools] == [0, 0]
    assert yard.job(id).state == "completed"
    assert stranger.process.poll() is None
    other.completes(other.shell("true"))


def test_rolling_restarts_under_load_cost_no_attempt_and_lose_nothing(
    yard: Yard, proof: Callable[[int, int], int]
) -> None:
    ids: list[int] = []
    old = yard.pool(count=2)
    for round in range(proof(6, 50)):
        ids += yard.calls("trace_in", [["ran", f"{round}-{n}"] for n in range(100)])
        ids += yard.shells([f"sleep 0.0{n}; echo {round}-c{n} >>ran" for n in range(5)])
        ids += yard.calls("arest_in", [["ran", 0.05]] * 5, kind="async")
        new = yard.pool(count=2)
        until(lambda before=len(yard.traces("ran")): len(yard.traces("ran")) > before, 15, "work goes on")
        old.send(signal.SIGTERM)
        assert old.ended() == 0, old.said()
        old = new
    for job in yard.completes(*ids, within_s=60):
        assert (job.attempts, job.interruptions) == (1, 0), yard.describe(job.id)
    assert len(yard.traces("ran")) == len(ids)


@pytest.mark.parametrize("where", ["turn.before_begin", "turn.after_claim", "turn.before_commit", "turn.after_commit"])
def test_a_signal_in_the_middle_of_a_turn_is_safe(yard: Yard, where: str) -> None:
    """The turn claims; what it brings goes back without having started, or has started and finishes."""
    ids = yard.shells(["echo ran >>ran; sleep 0.1"] * 4)
    pool = yard.pool(count=2, commands_only=True, failpoints={where: f"once:{yard.home}/here:sleep:0.3"})
    until(lambda: (yard.home / "here").exists(), 15, "the failpoint is reached")
    pool.send(signal.SIGTERM)
    assert pool.ended(5) == 0
    jobs = [yard.job(id) for id in ids]
    assert {(job.state, job.attempts) for job in jobs} <= {("pending", 0), ("completed", 1)}
    assert len(yard.traces("ran")) == sum(job.state == "completed" for job in jobs)


# ── drain ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_drain_also_runs_a_retry_that_is_due_after_the_last_job_has_ended(yard: Yard) -> None:
    ids = [yard.shell("test -e second || { touch second; exit 1; }", backoff_base=1.0), *yard.shells(["true"] * 5)]
    pool = yard.pool("--drain", count=2)
    assert pool.ended() == 0, pool.said()
    assert [yard.job(id).state for id in ids] == ["completed"] * 6
    assert yard.job(ids[0]).attempts == 2


def test_drain_also_runs_what_the_last_job_enqueues(yard: Yard) -> None:
    more = f"{sys.executable} -m covey enqueue --db {shlex.quote(yard.db)} 'echo more >>more'"
    yard.shell(more)
    assert yard.pool("--drain", count=1).ended() == 0
    assert yard.traces("more") == ["more"]


def test_drain_does_not_wait_for_what_is_scheduled_or_paused(yard: Yard) -> None:
    later = yard.shell("true", delay_s=3600.0)
    paused = yard.shell("true", queue="quiet")
    yard.engine.pause("quiet")
    yard.shell("true")
    assert yard.pool("--drain", count=1).ended() == 0
    assert [yard.job(id).state for id in (later, paused)] == ["scheduled", "pending"]


def test_drain_of_an_empty_queue_ends_at_once(yard: Yard) -> None:
    assert yard.pool("--drain", count=2).ended(10) == 0


def test_what_a_task_makes_of_our_own_shutdown_costs_it_nothing(yard: Yard) -> None:
    pool = yard.pool("--grace", "0.2", count=1).started()
    id = yard.call("turns_stop_into_an_error", "begun", max_attempts=3)
    yard.trace()
    assert pool.stop() == 1
    job = yard.job(id)
    assert (job.state, job.attempts, job.error) == ("pending", 0, None)


def test_a_stop_request_and_its_signal_are_one_request(yard: Yard) -> None:
    """`worker stop` asks through the store and signals as well; the job must still be allowed to finish."""
    pool = yard.pool(count=1).started()
    id = yard.shell("echo x >>traces; while ! test -e go; do sleep 0.02; done")
    yard.trace()
    yard.engine.stop_pools([pool.id])
    until(lambda: "no new jobs are taken" in pool.said(), 5, "the pool has heard it")
    pool.send(signal.SIGINT)
    (yard.home / "go").touch()
    assert pool.ended() == 0
    assert yard.job(id).state == "completed"
