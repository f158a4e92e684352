"""How a pool comes to life: worker types, a limited rush, failures that are named, and an idle pool's end."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import sys
import time
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from covey.core.view import Event
from covey.log import Log
from covey.pool import workers as crews
from covey.pool.worker_types import Type
from covey.pool.workers import Workers
from covey.system.resources import automatic
from covey.testing import until
from covey.worker import messages
from covey.worker.setting import WorkerConfig
from covey.worker.zygote import Zygote
from tests.kit.running import RunningPool, Watch, Yard, gone

from . import told

HELD = "echo + >>{0}; until test -e go; do sleep 0.02; done"
SHORT = "echo + >>{0}; sleep 0.05; echo - >>{0}"
NO_SUCH_LIBRARY = "ImportError: libduck.so.3: cannot open shared object file"


def at_a_time(traces: list[str]) -> int:
    """How many ran at the same time, at most, by what each left when it came (+) and went (-)."""
    return max(itertools.accumulate(1 if line == "+" else -1 for line in traces), default=0)


# ── worker types ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_type_has_its_own_workers_named_and_registered_with_its_queue(yard: Yard) -> None:
    pool = yard.pool("--worker", "notebook=3", "--worker", "shell=2", count=None, commands_only=True).started()
    view = told.shows(pool, 5)
    assert {(worker.name, worker.queue) for worker in view.workers} == {
        ("notebook-1", "notebook"),
        ("notebook-2", "notebook"),
        ("notebook-3", "notebook"),
        ("shell-1", "shell"),
        ("shell-2", "shell"),
    }
    assert (view.types, view.count) == ({"notebook": 3, "shell": 2}, 5)
    assert sorted(view.queues or []) == ["notebook", "shell"]
    assert "started 5/5 workers" in told.result_line(pool)


@pytest.mark.parametrize(("full", "free"), [("notebook", "shell"), ("shell", "notebook")])
@pytest.mark.parametrize("kind", ["command", "sync"])
def test_a_full_type_never_takes_the_places_of_another(
    yard: Yard, kind: str, full: str, free: str, proof: Callable[[int, int], int]
) -> None:
    counts = {"notebook": 3, "shell": 2}
    flags = [word for queue, count in counts.items() for word in ("--worker", f"{queue}={count}")]
    yard.pool(*flags, count=None, commands_only=kind == "command").started()
    elsewhere = yard.shell("true", queue="default")
    if kind == "command":
        held = yard.shells([HELD.format(full)] * (counts[full] + 3), queue=full)
        short = yard.shells([SHORT.format(free)] * proof(12, 200), queue=free)
    else:
        held = yard.calls("trace_or_hold", [[full, "go", "+", True]] * (counts[full] + 3), queue=full)
        short = yard.calls("in_and_out", [[free, 0.05]] * proof(12, 200), queue=free)
    yard.completes(*short, within_s=60)  # although not one of the other queue's has ended
    assert yard.traces(full) == ["+"] * counts[full]
    assert at_a_time(yard.traces(free)) == counts[free]
    (yard.home / "go").touch()
    yard.completes(*held)
    assert (yard.job(elsewhere).state, yard.job(elsewhere).attempts) == ("pending", 0)


def test_commands_and_tasks_of_a_type_share_its_places(yard: Yard) -> None:
    pool = yard.pool("--worker", "notebook=2", "--worker", "shell=1", count=None).started()
    ids = yard.shells([SHORT.format("both")] * 6, queue="notebook")
    ids += yard.calls("in_and_out", [["both", 0.05]] * 6, queue="notebook")
    ids += yard.calls("arest", [[0.01]] * 3, queue="notebook", kind="async")
    beside = [yard.call("rest", 0, queue="shell"), yard.call("arest", 0, queue="shell", kind="async")]
    yard.completes(*ids, *beside)
    assert at_a_time(yard.traces("both")) == 2
    view = told.shows(pool, 9)
    assert sorted((worker.queue, worker.mode or worker.kind) for worker in view.workers) == sorted(
        (queue, kind)
        for queue, count in (("notebook", 2), ("shell", 1))
        for kind in ("command", "sync", "async") * count
    )
    assert all(worker.name.startswith(f"{worker.queue}-") for worker in view.workers)


def test_a_count_of_0_leaves_a_queue_alone(yard: Yard) -> None:
    pool = yard.pool("--worker", "notebook=1", "--worker", "shell=0", count=None, commands_only=True)
    left = yard.shell("true", queue="shell")
    yard.completes(yard.shell("true", queue="notebook"))
    view = told.shows(pool, 1)
    assert (view.queues, view.count, [worker.name for worker in view.workers]) == (["notebook"], 1, ["notebook-1"])
    assert (yard.job(left).state, yard.job(left).attempts) == ("pending", 0)


def test_auto_shares_the_machine_among_the_types_that_ask_for_it(yard: Yard) -> None:
    flags = ["--worker", "notebook=auto", "--worker", "shell=auto", "--worker", "mail=1"]
    pool = yard.pool(*flags, count=None, commands_only=True).started()
    share = automatic(2)
    view = told.shows(pool, 2 * share + 1)
    assert view.types == {"notebook": share, "shell": share, "mail": 1}


def test_drain_ends_when_every_type_is_drained_and_leaves_the_other_queues(yard: Yard) -> None:
    ids = yard.shells([SHORT.format("ran")] * 9, queue="notebook") + yard.shells(["true"] * 2, queue="shell")
    ids += yard.calls("arest", [[0.01]] * 3, queue="shell", kind="async")
    # While one type waits for a retry, the other has long been drained.
    ids.append(yard.shell("test -e second || { touch second; exit 1; }", queue="notebook", backoff_base=1.0))
    other = yard.shell("true", queue="mail")
    pool = yard.pool("--drain", "--worker", "notebook=1", "--worker", "shell=2", count=None)
    assert pool.ended() == 0, pool.said()
    assert {yard.job(id).state for id in ids} == {"completed"}
    assert yard.job(other).state == "pending"


def test_a_stopping_pool_with_types_lets_each_type_finish_what_it_runs(yard: Yard) -> None:
    pool = yard.pool("--worker", "notebook=1", "--worker", "shell=1", count=None, commands_only=True).started()
    running = [yard.shell(HELD.format("ran"), queue=queue) for queue in ("notebook", "shell")]
    waiting = [yard.shell("true", queue=queue) for queue in ("notebook", "shell")]
    yard.trace("ran", 2)
    pool.send(signal.SIGINT)
    until(lambda: "waiting for job" in pool.said(), 5, "it says what it waits for")
    (yard.home / "go").touch()
    assert pool.ended() == 0, pool.said()
    assert [yard.job(id).state for id in running + waiting] == ["completed"] * 2 + ["pending"] * 2
    assert yard.engine.pool_views() == []


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--worker", "shell=1", "--count", "2"], "leave out --count and --queue"),
        (["--worker", "shell=1", "--queue", "shell"], "leave out --count and --queue"),
        (["--worker", "shell=1", "--worker", "shell=2"], "--worker shell: named twice"),
        (["--worker", "shell=0", "--worker", "mail=0"], "nobody would work"),
        (["--worker", "shell"], "write QUEUE=N"),
        (["--worker", "shell=two"], "a number of workers, or auto"),
        (["--worker", "shell=-1"], "a number of workers, or auto"),
        (["--worker", "shell="], "a number of workers, or auto"),
        (["--worker", "=3"], "queue"),
        (["--worker", "shell=1001"], "from 0 to 1,000"),
        (["--worker", "shell=600", "--worker", "mail=600"], "workers in all"),
        (["--max-startup-concurrency", "0"], "--max-startup-concurrency 0"),
    ],
)
def test_types_that_make_no_sense_are_refused_in_one_line_and_nothing_is_started(
    yard: Yard, flags: list[str], reason: str
) -> None:
    done = yard.run("worker", "start", *flags)
    assert done.returncode == 2, done.stderr
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert (done.stdout, told.events(yard), told.logs(yard)) == ("", [], [])


# ── many at the same time, but not too many ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("said_by", ["setting", "environment", "flag"])
def test_no_more_workers_start_at_the_same_time_than_allowed(make_yard: Callable[..., Yard], said_by: str) -> None:
    """The environment counts for more than the setting, the flag for more than either."""
    setting = {"setting": "2", "environment": "5", "flag": "5"}[said_by]
    environ = {"environment": "2", "flag": "4"}.get(said_by)
    yard = make_yard(max_startup_concurrency=setting)
    pool = yard.pool(
        *(["--max-startup-concurrency", "2"] if said_by == "flag" else []),
        count=6,
        commands_only=True,
        failpoints={"worker.starting": "sleep:0.1"},
        environ={"COVEY_MAX_WORKER_STARTUP_CONCURRENCY": environ} if environ else None,
    ).started()
    told.shows(pool, 6)
    assert told.most_starting(told.events(yard)) == 2


def test_ten_start_at_the_same_time_where_nobody_says_otherwise(yard: Yard) -> None:
    pool = yard.pool(count=14, commands_only=True, failpoints={"worker.starting": "sleep:0.3"}).started()
    told.shows(pool, 14)
    assert told.most_starting(told.events(yard)) == 10


def all_three(yard: Yard, worker: str) -> list[Event] | None:
    """What is told of a worker until it works; the last of it may come with a later turn."""
    found = [event for event in told.events(yard) if event.worker == worker]
    return found if len(found) >= 3 else None


def test_each_worker_is_said_to_be_starting_registered_and_ready(yard: Yard) -> None:
    pool = yard.pool(count=3, commands_only=True).started()
    told.shows(pool, 3)
    for number in (1, 2, 3):
        found = until(partial(all_three, yard, f"command-{number}"), 10)
        assert found[0].kind == "starting"
        # Its zygote tells of its start, it reports in by itself: two ways, and either may be the faster.
        assert sorted(event.kind for event in found[1:]) == ["ready", "registered"]
        assert {event.pool for event in found} == {pool.id}
    lines = [line.partition("✓ ")[2] for line in pool.said().splitlines() if "✓" in line]
    assert sorted(line.split()[1] for line in lines) == ["command-1", "command-2", "command-3"]
    assert [line.split()[2] for line in lines] == ["(1/3)", "(2/3)", "(3/3)"]


def test_a_herd_of_64_starts_and_stops_without_losing_one(yard: Yard) -> None:
    pool = yard.pool(count=64, commands_only=True)
    pool.started()
    assert re.search(r"started 64/64 workers in [\d.]+s$", told.result_line(pool))
    view = told.shows(pool, 64)
    assert {worker.name for worker in view.workers} == {f"command-{n}" for n in range(1, 65)}
    assert told.events(yard, "failed") == []
    everybody = pool.processes()
    assert len(everybody) == 67  # the pool, its zygote and the guard beside them
    assert pool.stop() == 0, pool.said()
    assert gone(*everybody)
    assert len(told.events(yard, "stopped")) == 64


# ── some cannot start ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_app_that_breaks_while_its_pool_runs_costs_neither_the_commands_nor_what_runs(yard: Yard) -> None:
    """A new zygote has to import it again: its workers are shown, in the books, in the log; in the end given up."""
    pool = yard.pool(app="broken_app:app", count=2).started()
    runs = yard.call("broken_app.quack", "go")
    yard.trace()
    (yard.home / "broken").touch()
    os.kill(pool.zygote, signal.SIGKILL)
    until(lambda: "the zygote was lost" in pool.said(), 10, "it notices")
    waits = yard.call("broken_app.quack", "go")
    yard.completes(yard.shell("true"))

    until(lambda: len(told.events(yard, "given_up")) == 2, 60, "both kinds are given up")
    view = until(lambda: (seen := pool.view()) and len(seen.given_up) == 2 and seen, 10, "its row says so")
    assert view.given_up == {"sync": NO_SUCH_LIBRARY, "async": NO_SUCH_LIBRARY}
    assert view.log
    failed = {event.text for event in told.events(yard, "failed") if "Error" in (event.text or "")}
    assert failed == {f"{NO_SUCH_LIBRARY}; log: {view.log}"}
    assert "Traceback" in (log := Path(view.log).read_text())
    assert f'raise ImportError("{NO_SUCH_LIBRARY.partition(": ")[2]}")' in log
    assert "Traceback" not in pool.said()

    yard.completes(yard.shell("true"))
    (yard.home / "go").touch()
    (job,) = yard.completes(runs)
    assert (job.attempts, job.interruptions, job.result) == (1, 0, "quack")
    assert (yard.job(waits).state, yard.job(waits).attempts) == ("pending", 0)
    assert pool.stop() == 0, pool.said()


def test_the_more_often_workers_die_young_the_later_the_next_is_tried_until_none_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long each takes to fail: an import may wait for something before it gives up."""
    clock = SimpleNamespace(ahead_s=0.0, monotonic_ns=time.monotonic_ns, time_ns=time.time_ns)
    clock.monotonic = lambda: time.monotonic() + clock.ahead_s
    monkeypatch.setattr(crews, "time", clock)
    type = Type("shell", ("shell",), 1)
    notes: list[tuple[str, str | None, str | None]] = []
    workers = Workers(Log("test", quiet=True), lambda *note: notes.append(note), limit=1, concurrency=1)
    workers.begin({type: {"sync": 1}})
    pauses = []
    for _ in range(crews.GIVE_UP):
        assert workers.start_more(lambda *_: None, lambda _: None) is None
        (worker,) = workers.by_name.values()
        clock.ahead_s += 3.0
        workers.bury(worker, "exited with code 1")
        later = workers.start_more(lambda *_: None, lambda _: pytest.fail("too soon")) if pauses else None
        pauses.append(later - clock.monotonic() if later else 0.0)
        clock.ahead_s += pauses[-1]
    assert pauses == [0.0, *(pytest.approx(0.1 * 2**n, abs=0.05) for n in range(6)), 0.0]
    assert workers.given_up == {"shell (sync)": "exited with code 1"}
    assert (workers.coming(), workers.kinds_of("shell")) == (False, [])
    assert notes[-1] == ("given_up", None, "shell (sync): exited with code 1")


def test_a_worker_killed_while_it_starts_is_named_and_replaced(yard: Yard) -> None:
    """As the kernel does it when memory runs out: SIGKILL, without a word."""
    strike = f"once:{yard.home}/struck:kill"
    pool = yard.pool(count=3, commands_only=True, failpoints={"worker.starting": strike}).started()
    line = told.result_line(pool)
    fallen = told.event(yard, "failed")
    assert re.search(r"started [23]/3 workers in [\d.]+s; failed: ", line)  # its heir may be there already
    assert f"failed: {fallen.worker} (was killed by SIGKILL); log: " in line
    told.shows(pool, 3)
    until(lambda: not told.workers(pool, "dead"), 10, "its heir stands in its place")
    yard.completes(*yard.shells(["true"] * 6))
    assert pool.stop() == 0, pool.said()


def test_without_a_single_worker_the_pool_ends_at_once_and_names_everyone(yard: Yard) -> None:
    waits = yard.shell("true")
    pool = yard.pool(count=3, commands_only=True, failpoints={"worker.starting": "kill"})
    assert pool.ended(10) == 1, pool.said()
    (log,) = told.logs(yard)
    line = told.result_line(pool)
    assert re.search(rf"started 0/3 workers in [\d.]+s; failed: .*; log: {log}$", line)
    assert sorted(re.findall(r"(\S+) \(was killed by SIGKILL\)", line)) == ["command-1", "command-2", "command-3"]
    failed = told.events(yard, "failed")
    assert {event.worker for event in failed} >= {"command-1", "command-2", "command-3"}
    assert {event.text for event in failed} == {f"was killed by SIGKILL; log: {log}"}
    assert len(failed) < crews.GIVE_UP  # no series of ever later trials
    assert yard.engine.pool_views() == []
    assert (yard.job(waits).state, yard.job(waits).attempts) == ("pending", 0)


def test_without_its_interpreter_a_pool_ends_at_once_and_names_everyone(yard: Yard) -> None:
    """An upgrade removed the environment that the pool was installed in."""
    wrapper = "import sys; sys.executable = '/no/such/python'; from covey.cli.main import main; main()"
    command = [sys.executable, "-c", wrapper, "worker", "start", "--db", yard.db]
    command += ["--worker", "notebook=2", "--worker", "shell=1"]
    pool = RunningPool(yard, command, yard.environ(), yard.home / "pool.log")
    yard.pools.append(pool)
    assert pool.ended(10) == 1, pool.said()
    (log,) = told.logs(yard)
    reason = "cannot start /no/such/python: No such file or directory"
    names = ("notebook-1", "notebook-2", "shell-1")
    assert "started 0/3 workers in " in pool.said()
    assert told.result_line(pool).endswith(f"; failed: {', '.join(f'{name} ({reason})' for name in names)}; log: {log}")
    assert "Traceback" not in pool.said()
    failed = told.events(yard, "failed")
    assert [(event.worker, event.text) for event in failed] == [(name, f"{reason}; log: {log}") for name in names]
    assert yard.engine.pool_views() == []


@pytest.mark.parametrize(
    ("app", "reason"),
    [
        ("no_such_module:app", "no module 'no_such_module'"),
        ("zoo:no_such_name", "module 'zoo' has no 'no_such_name'"),
        ("zoo:leave_trace", "'zoo:leave_trace' is not a Covey app"),
    ],
)
def test_an_app_that_is_not_there_is_said_in_one_line_and_nothing_is_left(yard: Yard, app: str, reason: str) -> None:
    pool = yard.pool(app=app)
    assert pool.ended() == 2, pool.said()
    assert pool.said() == f"error: cannot import the app {app!r}: {reason}\n"
    assert (yard.engine.pool_views(), yard.leftovers()) == ([], [])


@pytest.mark.parametrize("app", [None, "zoo:app"])
def test_a_pool_with_too_few_descriptors_has_fewer_workers_and_says_so(yard: Yard, app: str | None) -> None:
    pool = limited(yard, "ulimit -n 80", "--count", "16", *(["--app", app] if app else [])).started()
    (line,) = [line for line in pool.said().splitlines() if "open files" in line]
    found = re.search(r"the limit of 80 open files allows for (\d+) workers instead of (\d+), so (\d+) jobs", line)
    assert found, line
    fit, asked, jobs = map(int, found.groups())
    assert (asked, fit) == (48, 3 * jobs) if app else (16, jobs)
    assert jobs >= 1
    view = told.shows(pool, fit)
    assert view.count == jobs
    yard.completes(*yard.shells(["true"] * 20))
    if app:
        yard.completes(*yard.calls("add", [[1, 2]] * 20))
    assert pool.stop() == 0, pool.said()


def test_types_share_too_few_descriptors(yard: Yard) -> None:
    pool = limited(yard, "ulimit -n 80", "--worker", "shell=16", "--worker", "mail=2").started()
    view = until(pool.view, 10)
    assert view.types
    assert view.types["mail"] in (1, 2)
    assert view.types["shell"] < 16
    yard.completes(yard.shell("true", queue="mail"), yard.shell("true", queue="shell"))


def test_a_soft_limit_of_descriptors_is_no_limit(yard: Yard) -> None:
    pool = limited(yard, "ulimit -Sn 64", "--count", "16").started()
    assert "open files" not in pool.said()
    told.shows(pool, 16)


def test_a_pool_with_descriptors_for_nobody_says_so_in_one_line(yard: Yard) -> None:
    pool = limited(yard, "ulimit -n 30", "--count", "1")
    assert pool.ended() == 1, pool.said()
    assert pool.said() == "error: the limit of 30 open files is too low for 1 workers; raise it with `ulimit -n`\n"
    assert yard.engine.pool_views() == []


def limited(yard: Yard, first: str, *flags: str) -> RunningPool:
    """A pool that was started by a shell which did something first."""
    words = [*yard.covey(), "worker", "start", "--db", yard.db, *flags]
    pool = RunningPool(yard, ["sh", "-c", f'{first}; exec "$@"', "sh", *words], yard.environ(), yard.home / "pool.log")
    yard.pools.append(pool)
    return pool


def test_a_system_that_refuses_a_process_costs_that_worker_and_not_the_pool(yard: Yard) -> None:
    """Refused for a while, as at a limit of processes: those are named, and there when the system gives in."""
    (yard.home / "sitecustomize.py").write_text(
        "import errno, os, sys\n"
        "fork, left = os.fork, [3]\n"  # the first is for a guard, without which it goes on
        "def refuse():\n"
        "    left[0] -= 1\n"
        "    if left[0] >= 0:\n"
        "        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))\n"
        "    return fork()\n"
        "if 'covey.worker.zygote' in sys.orig_argv:\n"
        "    os.fork = refuse\n"
    )
    pool = yard.pool(count=4, commands_only=True).started()
    line = told.result_line(pool)
    assert re.search(r"started \d/4 workers in ", line)
    for name in ("command-1", "command-2"):
        assert f"{name} (cannot fork: Resource temporarily unavailable)" in line
    told.shows(pool, 4)
    yard.completes(*yard.shells(["true"] * 8))
    assert pool.stop() == 0, pool.said()


def test_a_zygote_that_may_not_fork_says_so_and_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = os.pipe(), os.pipe()
    fds = [ends[0][0], ends[0][1], ends[1][0]]
    zygote = Zygote(theirs, WorkerConfig(None, "", "0:0", -1, 1024), preload=False)
    monkeypatch.setattr(os, "fork", refuse)
    before = len(os.listdir("/proc/self/fd"))
    try:
        for name in ("shell-1", "shell-2"):
            request = messages.encode(messages.ForkWorker(name, "command", 1))
            ours.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))])
            assert zygote._listen()
            reason = "cannot fork: Resource temporarily unavailable"
            assert messages.decode_from_zygote(ours.recv(4096)) == messages.NotForked(name, reason)
        assert len(os.listdir("/proc/self/fd")) == before  # what came with the request is closed
        ours.close()
        assert not zygote._listen()
    finally:
        ours.close()
        theirs.close()
        for fd in (*ends[0], *ends[1], zygote._bell, zygote._ring):
            os.close(fd)


# ── the end of an idle pool ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_pool_of_16_and_all_its_processes_are_gone_soon_after_the_signal(
    yard: Yard, number: signal.Signals
) -> None:
    """Half a second where nothing else runs, which the benchmark measures; here only that nothing is waited for."""
    pool = yard.pool(count=16, commands_only=True).started()
    everybody = [*pool.processes(), *pool.workers(16)]
    watch = Watch()
    pool.send(number)
    assert pool.ended() == 0
    until(lambda: gone(*everybody), 2, "every process is gone")
    assert watch.within(2)
    assert yard.engine.pool_views() == []
