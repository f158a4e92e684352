"""Pools, zygotes and workers that are killed, frozen or given up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.env import boot, start_ticks
from covey.errors import Busy
from covey.store.sqlite.database import Sqlite
from covey.testing import until
from tests.kit import HandPool
from tests.kit.factories import pool_info
from tests.kit.faults import Child
from tests.kit.running import Watch, Yard, gone

STORES = ("file", "postgres")
SERVED = ()  # all of them in `make proof`, none in `make test`
FAMILY = "echo $$ >>{0}; setsid sh -c 'echo $$ >>{0}; sleep 1000' & sleep 1000 & echo $! >>{0}; wait"

HOLDER = """
import sys
from covey.store.sqlite.database import Sqlite
store = Sqlite(sys.argv[1])
with store.transaction():
    print("held", flush=True)
    sys.stdin.readline()
"""


def quick(make_yard: Callable[..., Yard]) -> Yard:
    """A queue whose pools are given up after a second of silence."""
    return make_yard(heartbeat_seconds=0.3, lock_lease_seconds=1)


# ── killed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_below_a_killed_pool_is_gone_within_two_seconds_without_help(yard: Yard) -> None:
    pool = yard.pool(count=2).started()
    yard.shell(FAMILY.format("pids"))
    yard.call("hold_the_gil", 1000)
    yard.call("arest", 1000, kind="async")
    pids = list(map(int, yard.trace("pids", 3)))
    yard.trace("traces", 2)
    everything = [*pool.processes(), *pids]
    assert len(everything) >= 9
    pool.kill()
    until(lambda: gone(*everything), 2, "all of them are gone")
    assert yard.leftovers() == []


def test_a_killed_pools_jobs_run_again_within_two_seconds_at_no_cost(yard: Yard) -> None:
    first = yard.pool(count=2).started()
    command = yard.shell(FAMILY.format("pids"))
    sync = yard.call("rest", 1000)
    pids = list(map(int, yard.trace("pids", 3)))
    yard.trace()
    second = yard.pool(count=2).started()
    first.kill()
    watch = Watch()
    again = list(map(int, yard.trace("pids", 6, within_s=2)))[3:]
    yard.trace(least=2, within_s=max(0.1, 2 - watch.s))
    assert gone(*pids)
    assert not gone(*again)
    for id in (command, sync):
        job = yard.job(id)
        assert (job.state, job.attempts, job.interruptions, job.pool) == ("processing", 1, 1, second.id)


def test_a_killed_pools_jobs_run_again_when_the_next_pool_starts(yard: Yard) -> None:
    first = yard.pool(count=1).started()
    id = yard.shell("echo $$ >>pids; sleep 1000")
    yard.trace("pids")
    first.kill()
    yard.pool(count=1)
    yard.trace("pids", 2, within_s=5)
    job = yard.job(id)
    assert (job.attempts, job.interruptions) == (1, 1)
    assert len(yard.engine.pool_views()) == 1


def test_if_pool_guard_zygote_and_worker_are_killed_at_once_the_next_pool_removes_the_leftovers(yard: Yard) -> None:
    pool = yard.pool(count=1, commands_only=True).started()
    id = yard.shell(FAMILY.format("pids"))
    pids = list(map(int, yard.trace("pids", 3)))
    doomed = [pool.pid, pool.guard, pool.zygote, *pool.workers()]
    for pid in doomed:
        os.kill(pid, signal.SIGSTOP)
    for pid in reversed(doomed):
        os.kill(pid, signal.SIGKILL)
    pool.process.wait()
    assert not gone(*pids)  # nobody is left who could end them
    yard.pool(count=1, commands_only=True)
    again = list(map(int, yard.trace("pids", 6, within_s=5)))[3:]
    assert gone(*pids)
    assert not gone(*again)
    assert (yard.job(id).attempts, yard.job(id).interruptions) == (1, 1)


def test_jobs_go_on_when_the_zygote_is_killed_and_new_ones_run(yard: Yard) -> None:
    pool = yard.pool(count=3).started()
    ids = [
        yard.shell("echo $$ >>running; while ! test -e go; do sleep 0.02; done; echo done"),
        yard.call("hold", "go", 1),
        yard.call("meet", "crowd", 2, kind="async"),
    ]
    for name in ("running", "traces", "crowd"):
        yard.trace(name)
    zygote = pool.zygote
    os.kill(zygote, signal.SIGKILL)
    until(lambda: "the zygote was lost" in pool.said(), 2, "it notices")
    yard.completes(yard.call("add", 1, 2), yard.call("aspeak", "x", kind="async"))
    assert [yard.job(id).state for id in ids] == ["processing"] * 3
    (yard.home / "go").touch()
    (yard.home / "crowd").write_text("here\nhere\n")
    for job in yard.completes(*ids):
        assert (job.attempts, job.interruptions) == (1, 0)
    assert yard.attempt(ids[0]).stdout == "done\n"
    yard.completes(yard.shell("true"))
    assert pool.stop() == 0


def test_a_zygote_that_is_killed_while_idle_is_replaced(yard: Yard) -> None:
    pool = yard.pool(count=2).started()
    killed: list[int] = []
    for _ in range(3):
        killed.append(_zygote(yard, killed))
        os.kill(killed[-1], signal.SIGKILL)
        _zygote(yard, killed)
        yard.completes(yard.shell("true"), yard.call("add", 1, 2), yard.call("aspeak", "x", kind="async"))
    assert pool.stop() == 0


def test_a_family_whose_worker_and_zygote_are_killed_together_is_gone_and_its_job_runs_again(yard: Yard) -> None:
    pool = yard.pool(count=1, commands_only=True).started()
    (worker,) = pool.workers()
    id = yard.shell(FAMILY.format("pids"), backoff_base=1.0, backoff_cap_s=0.0)
    pids = list(map(int, yard.trace("pids", 3)))
    os.kill(pool.zygote, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    until(lambda: gone(*pids), 2, "the family is gone")
    yard.trace("pids", 6, within_s=5)
    assert yard.job(id).attempts == 2


@pytest.mark.parametrize("also", ["worker", "zygote"])
def test_nothing_survives_when_another_process_is_killed_together_with_the_pool(yard: Yard, also: str) -> None:
    """Also a function that holds the interpreter: the kernel ends it when the pool's end of a pipe is closed. And a
    coroutine that blocks its loop, with what it has started: a thread listens for it."""
    pool = yard.pool(count=2).started()
    yard.shell(FAMILY.format("pids"))
    yard.call("arest", 1000, kind="async")
    yard.call("hold_the_gil", 1000)
    pids = list(map(int, yard.trace("pids", 3)))
    yard.trace("traces", 2)
    yard.call("ablocks_beside_a_child", "never", kind="async")
    (child,) = yard.trace("blocks")
    everything = [*pool.processes(), *pids, int(child)]
    (other,) = [pool.zygote] if also == "zygote" else [_parent(pids[0])]
    os.kill(pool.pid, signal.SIGSTOP)  # so that it cannot react in between
    os.kill(other, signal.SIGKILL)
    pool.kill()
    until(lambda: gone(*everything), 2, "all of them are gone")


def test_workers_that_cannot_notice_that_their_pool_was_killed_are_ended_by_the_zygote(yard: Yard) -> None:
    """A coroutine that blocks its loop and a frozen worker hear nothing, and the kernel was not asked to end them."""
    pool = yard.pool(count=1).started()
    yard.shell(FAMILY.format("pids"))
    yard.call("ablocks", "never", kind="async")
    pids = list(map(int, yard.trace("pids", 3)))
    yard.trace("blocks")
    everything = [*pool.processes(), *pids]
    os.kill(_parent(pids[0]), signal.SIGSTOP)
    pool.kill()
    until(lambda: gone(*everything), 2, "all of them are gone")


# ── silent ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_holds_the_gil_for_three_leases_keeps_its_lease(make_yard: Callable[..., Yard]) -> None:
    yard = quick(make_yard)
    yard.pool(count=1).started()
    yard.pool(count=1).started()
    id = yard.call("hold_the_gil", 3.2)
    (job,) = yard.completes(id)
    assert (job.attempts, job.interruptions, yard.traces()) == (1, 0, ["locked"])
    assert not [event for event in yard.engine.events() if event.kind == "pool_lost"]


def test_a_frozen_pool_is_given_up_and_what_it_says_later_is_refused(make_yard: Callable[..., Yard]) -> None:
    yard = quick(make_yard)
    frozen = yard.pool(count=1).started()
    id = yard.shell("echo $$ >>pids; trap '' TERM; while ! test -e go; do sleep 0.05; done", max_attempts=1)
    first = yard.pid_in("pids")
    name = frozen.id
    frozen.send(signal.SIGSTOP)
    other = yard.pool(count=1).started()
    second = int(yard.trace("pids", 2, within_s=1 + 0.3 + 5)[1])
    assert gone(first)
    assert not gone(second)
    job = yard.job(id)
    assert (job.attempts, job.interruptions, job.pool) == (1, 1, other.id)
    frozen.send(signal.SIGCONT)
    until(lambda: (view := frozen.view()) and view.id != name, 10, "it rejoins under a new name")
    (yard.home / "go").touch()
    (job,) = yard.completes(id)
    assert (job.attempts, job.interruptions) == (1, 1)
    assert yard.traces("pids") == [str(first), str(second)]
    assert other.stop() == 0
    yard.completes(yard.shell("true"), yard.call("add", 1, 2))  # only the one that was frozen is left
    assert frozen.stop() == 0


def test_a_completion_that_was_under_way_when_the_pool_froze_is_refused(make_yard: Callable[..., Yard]) -> None:
    """Frozen between its worker's report and its turn: the pool's process is stopped by a failpoint."""
    yard = quick(make_yard)
    frozen = yard.pool(count=1, commands_only=True).started()
    id = yard.shell("echo $$ >>pids; while ! test -e go; do sleep 0.01; done")
    yard.trace("pids")
    os.kill(frozen.pid, signal.SIGSTOP)
    (yard.home / "go").touch()
    yard.pool(count=1, commands_only=True)
    (job,) = yard.completes(id, within_s=10)
    assert (job.attempts, job.interruptions, len(yard.traces("pids"))) == (1, 1, 2)
    fence = job.fence
    frozen.send(signal.SIGCONT)
    until(lambda: "this pool was given up" in frozen.said(), 5, "it notices")
    assert (yard.job(id).state, yard.job(id).fence) == ("completed", fence)


@pytest.mark.file_only
def test_writers_behind_a_pool_that_was_stopped_inside_a_transaction_name_it(yard: Yard) -> None:
    pool = yard.pool(count=1, failpoints={"store.after_begin": f"once:{yard.home}/stopped:stop"})
    until(lambda: (yard.home / "stopped").exists(), 15, "it stops inside a transaction")
    store = Sqlite(yard.db, timeout_s=0.3)
    try:
        with pytest.raises(Busy) as caught, store.transaction():
            pass
        assert caught.value.pid == pool.pid
        assert f"pid {pool.pid} (" in str(caught.value)
        assert "stopped" in str(caught.value)
    finally:
        store.close()
    pool.send(signal.SIGCONT)
    yard.completes(yard.shell("true"))


@pytest.mark.file_only
def test_results_are_delivered_when_the_database_can_be_used_again(
    yard: Yard, proof: Callable[[float, float], float]
) -> None:
    pool = yard.pool(count=2).started()
    ids = [
        yard.shell("echo $$ >>pids; while ! test -e go; do sleep 0.02; done; echo fine"),
        yard.call("hold", "go", 1),
    ]
    pid = yard.pid_in("pids")
    yard.trace()
    with Child(HOLDER, yard.db) as child:
        assert child.line() == "held"
        watch, away_s = Watch(), proof(3.0, 60.0)
        (yard.home / "go").touch()
        until(lambda: gone(pid) and watch.s > away_s, away_s + 5)
        assert pool.process.poll() is None
        if away_s > 15:
            assert f"the queue cannot be used: pid {child.pid}" in pool.said()
            assert pool.said().count("the queue cannot be used") <= away_s / 10 + 1
        child.say()
        child.end()
    for job in yard.completes(*ids, within_s=20):
        assert (job.attempts, job.interruptions) == (1, 0)
    assert yard.attempt(ids[0]).stdout == "fine\n"
    assert pool.stop() == 0


# ── struck off ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_whose_pool_row_was_deleted_is_recovered_and_the_old_family_ended(
    make_yard: Callable[..., Yard],
) -> None:
    yard = quick(make_yard)
    pool = yard.pool(count=1).started()
    id = yard.shell("echo $$ >>pids; sleep 1000")
    first = yard.pid_in("pids")
    name = pool.id
    _forget(yard, name)
    second = int(yard.trace("pids", 2, within_s=1 + 2 + 5)[1])
    assert gone(first)
    assert not gone(second)
    job = yard.job(id)
    assert job.attempts == 1
    assert job.pool == pool.id != name


def test_a_pool_whose_row_was_deleted_gets_no_job_before_it_has_registered_anew(
    make_yard: Callable[..., Yard],
) -> None:
    yard = quick(make_yard)
    pool = yard.pool(count=1, commands_only=True).started()
    name = pool.id
    _forget(yard, name)
    (job,) = yard.completes(yard.shell("echo hello"))
    assert job.attempts == 1
    assert yard.attempt(job.id).pool == pool.id != name


def test_a_pool_with_the_host_and_pid_of_a_dead_one_is_another_pool(yard: Yard) -> None:
    """A restarted container has the same host name and pids; start ticks and boot tell them apart."""
    id = yard.shell("echo ran >>traces")
    pool = yard.pool(count=1, failpoints={"pool.after_register": f"once:{yard.home}/here:sleep:1"})
    until(lambda: (yard.home / "here").exists(), 15, "it has registered")
    twin = pool_info("twin", host="elsewhere", boot=boot(), pid=pool.pid, ticks=1, count=1)
    dead = HandPool(yard.engine, twin)
    (claim,) = dead.claim(1)
    assert claim.id == id
    yard.completes(id, within_s=10)
    assert yard.job(id).interruptions == 1
    assert [view.id for view in yard.engine.pool_views()] == [pool.id]


def test_a_stale_row_with_the_pid_of_a_living_stranger_is_reaped_and_the_stranger_left_alone(yard: Yard) -> None:
    id = yard.shell("echo ran >>traces")
    with Child("import signal; print('up', flush=True); signal.sigwait([signal.SIGUSR1])") as stranger:
        assert stranger.line() == "up"
        ticks = start_ticks(stranger.pid)
        assert ticks
        # A lease that does not end here: the ticks alone tell.
        row = pool_info("stale", boot=boot(), pid=stranger.pid, ticks=ticks - 1, lease_s=3600)
        HandPool(yard.engine, row).claim(1)
        yard.pool(count=1)
        yard.completes(id, within_s=10)
        assert yard.job(id).interruptions == 1
        assert yard.run("worker", "stop").returncode == 0
        assert stranger.process.poll() is None


def test_two_queues_on_one_host_never_touch_each_others_processes(make_yard: Callable[..., Yard]) -> None:
    yard, other = make_yard(), make_yard()
    yard.pool(count=1, commands_only=True).started()
    mine = yard.shell("echo $$ >>pids; sleep 1000")
    pid = yard.pid_in("pids")
    doomed = other.pool(count=1, commands_only=True).started()
    other.shell("echo $$ >>pids; sleep 1000")
    other.trace("pids")
    doomed.kill()
    other.pool("--grace", "0", count=1, commands_only=True)
    other.trace("pids", 2, within_s=5)
    assert other.run("worker", "stop", "--now").returncode == 0
    assert not gone(pid)
    assert (yard.job(mine).state, yard.job(mine).attempts) == ("processing", 1)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(") ")[2].split()[1])


def _zygote(yard: Yard, killed: list[int]) -> int:
    """The zygote after those, once the store knows it. The pool's first child will not do: when a zygote is killed,
    its workers become the pool's children."""

    def find() -> int | None:
        ((pid, ticks),) = yard.engine.store.raw("select zygote_pid, zygote_ticks from {pools}")
        return pid if pid not in killed and start_ticks(pid) == ticks else None

    return until(find, 10, "the store knows a zygote that lives")


def _forget(yard: Yard, pool: int) -> None:
    with yard.engine.store.transaction():
        yard.engine.store.ask("remove_pool", pool=pool)


def test_a_killed_pool_leaves_nothing_in_the_temporary_directory(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    yard.call("rest", 1000)
    yard.trace()
    pool.kill()
    until(lambda: yard.leftovers() == [], 2)
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("covey-out-*"))


def test_what_a_job_started_with_an_empty_environment_ends_with_a_pool_that_is_given_up(
    make_yard: Callable[..., Yard],
) -> None:
    """It carries no mark; it is found below the processes that do."""
    yard = quick(make_yard)
    first = yard.pool(count=1).started()
    yard.shell("env -i /bin/sh -c 'echo $$ >>pids; sleep 1000; true'")
    (pid,) = map(int, yard.trace("pids", 1))
    first.send(signal.SIGSTOP)
    yard.pool(count=1).started()
    until(lambda: gone(pid), 10, "the first run is gone")
    yard.trace("pids", 2)
    first.send(signal.SIGCONT)


def test_a_job_outlives_two_zygotes(yard: Yard) -> None:
    """What the first one left running is still there when the second is killed; the pool must not stumble over it."""
    pool = yard.pool(count=1, commands_only=True).started()
    id = yard.shell("echo x >>traces; while ! test -e go; do sleep 0.02; done")
    yard.trace()
    killed: list[int] = []
    for _ in range(2):
        killed.append(_zygote(yard, killed))
        os.kill(killed[-1], signal.SIGKILL)
    _zygote(yard, killed)
    (yard.home / "go").touch()
    (job,) = yard.completes(id)
    assert (job.attempts, job.interruptions) == (1, 0)
    assert pool.stop() == 0, pool.said()
