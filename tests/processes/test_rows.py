"""Proof rows whose failure would be easy to miss: frozen at the worst moment, struck off and dead, half started."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey.errors import Busy
from covey.store.sqlite.database import Sqlite
from covey.testing import until
from tests.kit import HandPool
from tests.kit.factories import pool_info
from tests.kit.running import RunningPool, Watch, Yard, gone

from .escapers import COMMANDS, holders

LEASE_S, BEAT_S = 1.0, 0.3


def quick(make_yard: Callable[..., Yard]) -> Yard:
    """A queue whose pools are given up after a second of silence."""
    return make_yard(heartbeat_seconds=BEAT_S, lock_lease_seconds=LEASE_S)


class Trap:
    """A failpoint that strikes once for every time it is set. A pool started with it passes until then."""

    def __init__(self, yard: Yard, point: str, action: str) -> None:
        self._file = yard.home / f"trap-{point}"
        self._file.touch()
        self.failpoints = {point: f"once:{self._file}:{action}"}

    def set(self) -> None:
        self._file.unlink(missing_ok=True)

    @property
    def path(self) -> Path:
        return self._file

    def has_struck(self) -> bool:
        return self._file.exists()


def freeze(pool: RunningPool, trap: Trap) -> None:
    """The pool is stopped exactly there: its store thread lingers at the failpoint while the signal reaches all."""
    until(trap.has_struck, 15, "the failpoint is reached")
    pool.send(signal.SIGSTOP)
    tasks = f"/proc/{pool.pid}/task"
    until(lambda: all(_state(f"{tasks}/{task}") == "T" for task in os.listdir(tasks)), 5, "every thread has stopped")


def _state(process: str) -> str:
    with open(f"{process}/stat") as stat:
        return stat.read().rpartition(") ")[2][0]


# ── struck off ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_and_leftovers_of_a_dead_pool_whose_row_is_gone_as_well_are_recovered(
    make_yard: Callable[..., Yard],
) -> None:
    """Nobody can look up who it was: its jobs still name it, and its processes carry that name."""
    yard = quick(make_yard)
    dead = yard.pool(count=1, commands_only=True).started()
    id = yard.shell("echo $$ >>pids; sleep 1000")
    first = yard.pid_in("pids")
    name = dead.id
    doomed = [dead.pid, dead.guard, dead.zygote, *dead.workers()]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in doomed:
            os.kill(pid, number)
    dead.process.wait()
    with yard.engine.store.transaction():
        yard.engine.store.ask("remove_pool", pool=name)
    assert not gone(first)
    other = yard.pool(count=1, commands_only=True).started()
    second = int(yard.trace("pids", 2, within_s=12)[1])
    assert gone(first)
    assert not gone(second)
    job = yard.job(id)
    assert (job.state, job.attempts, job.pool) == ("processing", 1, other.id)


# ── the same host and pid ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["this-boot", "another-boot", "another-pid-namespace"])
def test_a_pool_that_restarts_with_the_same_host_name_and_pid_is_not_its_predecessor(
    make_yard: Callable[..., Yard], what: str
) -> None:
    """A restarted container has them. What the predecessor held comes back; the new one is not taken for dead.

    Its start ticks and its boot tell at once who it was. Only for a container beside ours must a lease pass.
    """
    lease_s = LEASE_S if what == "another-pid-namespace" else 30.0
    yard = make_yard(heartbeat_seconds=BEAT_S, lock_lease_seconds=lease_s)
    pool = yard.pool(count=1, failpoints={"pool.after_register": f"once:{yard.home}/here:sleep:1"})
    until(lambda: (yard.home / "here").exists(), 15, "it has registered")
    (mine,) = yard.engine.pools()
    boot_id, _, namespace = mine.boot.partition(":")
    boots = {
        "this-boot": mine.boot,
        "another-boot": f"another:{namespace}",
        "another-pid-namespace": f"{boot_id}:another",
    }
    ticks = mine.ticks if what != "this-boot" else mine.ticks - 1
    twin = pool_info("twin", host=mine.host, boot=boots[what], pid=mine.pid, ticks=ticks, lease_s=lease_s)
    id = yard.shell("echo ran >>traces")
    (claim,) = HandPool(yard.engine, twin).claim(1)
    assert claim.id == id
    (job,) = yard.completes(id, within_s=12)
    assert (job.attempts, job.interruptions, yard.traces()) == (1, 1, ["ran"])
    neighbour = yard.pool(count=1).started()
    until(lambda: {view.id for view in yard.engine.pool_views()} == {mine.id, neighbour.id}, 5, "both are known")
    yard.completes(yard.call("add", 1, 2), yard.shell("true"))
    assert pool.id == mine.id
    assert "given up" not in pool.said()
    assert not gone(*pool.workers())


# ── signals during start-up ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_workers_start_ends_the_pool_and_nothing_is_claimed(yard: Yard, number: signal.Signals) -> None:
    """They would take half a minute; nobody waits for them."""
    id = yard.shell("echo started >>traces")
    pool = yard.pool(count=2, failpoints={"worker.starting": "sleep:30"})
    pool.workers(2)
    pool.send(number)
    assert pool.ended(5) == 0, pool.said()
    job = yard.job(id)
    assert (job.state, job.attempts, job.interruptions, yard.traces()) == ("pending", 0, 0, [])
    assert yard.engine.pool_views() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["store.after_begin", "store.before_commit", "turn.before_begin"])
def test_a_signal_at_the_first_touch_of_the_store_ends_the_pool_and_nothing_is_claimed(
    yard: Yard, where: str, number: signal.Signals
) -> None:
    """A transaction of the start-up is finished or undone, never left open."""
    id = yard.shell("echo started >>traces")
    pool = yard.pool(count=1, commands_only=True, failpoints={where: f"once:{yard.home}/here:sleep:0.5"})
    until(lambda: (yard.home / "here").exists(), 15, "the failpoint is reached")
    pool.send(number)
    assert pool.ended(5) == 0, pool.said()
    job = yard.job(id)
    assert (job.state, job.attempts, job.interruptions, yard.traces()) == ("pending", 0, 0, [])
    assert yard.engine.pool_views() == []


# ── the grace is over ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["deaf-tree", "daemon", "empty-environment"])
def test_after_the_grace_the_whole_tree_is_gone_before_another_pool_starts_the_job(yard: Yard, name: str) -> None:
    animal = next(each for each in COMMANDS if each.name == name)
    marker = str(yard.home / name)
    first = yard.pool("--grace", "0.5", count=1, commands_only=True).started()
    id = yard.shell(animal.words(marker, yard.home / "never", 0), max_attempts=1)
    until(lambda: holders(marker) and "up" in Path(marker).read_text(), 15, "it is up")
    other = yard.pool(count=1, commands_only=True).started()
    watch = Watch()
    first.send(signal.SIGTERM)
    (job,) = yard.ends(id, within_s=10)
    assert watch.within(0.5 + 2)
    assert (job.state, job.attempts, job.interruptions) == ("completed", 1, 0), yard.describe(id)
    assert yard.engine.history(id) == []  # the second run tells whom it saw: nobody
    assert holders(marker) == []
    assert first.ended(5) == 1
    assert other.stop() == 0


# ── frozen ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_completion_that_comes_three_leases_late_is_refused_while_the_new_run_goes_on(
    make_yard: Callable[..., Yard],
) -> None:
    """The pool is stopped with the report in its hands, outside a transaction."""
    yard = quick(make_yard)
    trap = Trap(yard, "turn.before_begin", "sleep:3")
    old = yard.pool(count=1, commands_only=True, failpoints=trap.failpoints).started()
    id = yard.shell(
        f"echo $$ >>pids; if test -e second; then while ! test -e go; do sleep 0.02; done; echo new; exit 0; fi\n"
        f"touch second; echo old; rm {trap.path}; touch armed"
    )
    until(lambda: (yard.home / "armed").exists(), 15, "it is about to end")
    freeze(old, trap)
    name = old.id
    new = yard.pool(count=1, commands_only=True).started()
    second = int(yard.trace("pids", 2, within_s=LEASE_S + BEAT_S + 5)[1])
    fence = yard.job(id).fence
    watch = Watch()
    until(lambda: watch.s > 2 * LEASE_S, 10)
    old.send(signal.SIGCONT)
    until(lambda: "given up" in old.said(), BEAT_S + 5, "it notices")
    until(lambda: (view := old.view()) and view.id != name, 10, "it is back under a new name")
    job = yard.job(id)
    assert (job.state, job.fence, job.pool, job.attempts, job.interruptions) == ("processing", fence, new.id, 1, 1)
    assert not gone(second)
    (yard.home / "go").touch()
    (job,) = yard.completes(id)
    assert (job.fence, yard.attempt(id).stdout) == (fence, "new\n")
    assert len(yard.traces("pids")) == 2


def test_what_a_pool_had_claimed_when_it_froze_never_starts_there(make_yard: Callable[..., Yard]) -> None:
    """It is stopped between the commit of its claim and the worker. Afterwards the claim looks as good as ever."""
    yard = quick(make_yard)
    trap = Trap(yard, "turn.after_commit", "sleep:3")
    old = yard.pool(count=1, commands_only=True, failpoints=trap.failpoints).started()
    yard.engine.pause("default")
    id = yard.shell("echo $PPID >>ran; while ! test -e go; do sleep 0.02; done")
    for _ in range(20):
        trap.set()
        yard.engine.resume("default")
        freeze(old, trap)
        if yard.job(id).state == "processing":
            break
        yard.engine.pause("default")  # it was a turn without the claim
        old.send(signal.SIGCONT)
    name = old.id
    assert (yard.job(id).pool, yard.traces("ran")) == (name, [])
    new = yard.pool(count=1, commands_only=True).started()
    yard.trace("ran", within_s=LEASE_S + BEAT_S + 5)
    watch = Watch()
    until(lambda: watch.s > 2 * LEASE_S, 10)
    old.send(signal.SIGCONT)
    until(lambda: (view := old.view()) and view.id != name, 10, "it is back under a new name")
    (yard.home / "go").touch()
    (job,) = yard.completes(id)
    assert (job.attempts, job.interruptions) == (1, 1)
    assert yard.traces("ran") == [str(new.workers()[0])]


@pytest.mark.file_only
@pytest.mark.parametrize("where", ["turn.after_reports", "turn.before_commit"])
def test_a_pool_that_is_stopped_inside_a_transaction_keeps_its_jobs_and_they_cost_nothing(
    make_yard: Callable[..., Yard], where: str
) -> None:
    """Nobody can write meanwhile, so nobody can have given it up: what it holds is still its own afterwards."""
    yard = quick(make_yard)
    trap = Trap(yard, where, "sleep:3")
    held = yard.pool(count=1, commands_only=True, failpoints=trap.failpoints).started()
    id = yard.shell("echo $$ >>pids; while ! test -e go; do sleep 0.02; done; echo fine", max_attempts=1)
    pid = yard.pid_in("pids")
    yard.pool(count=1, commands_only=True).started()
    trap.set()
    freeze(held, trap)
    store = Sqlite(yard.db, timeout_s=0.2)
    try:
        with pytest.raises(Busy, match=f"pid {held.pid}"), store.transaction():
            pass
    finally:
        store.close()
    watch = Watch()
    until(lambda: watch.s > 3 * LEASE_S, 10)
    assert not gone(pid)
    held.send(signal.SIGCONT)
    (yard.home / "go").touch()
    (job,) = yard.completes(id)
    assert (job.attempts, len(yard.traces("pids"))) == (1, 1), yard.describe(id)


# ── drain ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_drain_leaves_nothing_that_failed_at_the_very_end(yard: Yard, proof: Callable[[int, int], int]) -> None:
    """Each round ends with a job that fails and is due again at once: the pool must not leave in between."""
    soon: dict[str, Any] = {"backoff_base": 1.0, "backoff_cap_s": 0.0}
    for round in range(proof(2, 100)):
        ids = yard.shells([f"mkdir {round}-{n} 2>>noise && exit 1; exit 0" for n in range(3)], **soon)
        ids.append(yard.call("fails_once", f"{round}-task", **soon))
        pool = yard.pool("--drain", count=2)
        assert pool.ended(30) == 0, pool.said()
        for id in ids:
            job = yard.job(id)
            assert (job.state, job.attempts) == ("completed", 2), yard.describe(id)


# ── the database is away ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "where", ["turn.before_begin", "turn.after_reports", "turn.before_commit", "turn.after_commit"]
)
def test_results_survive_turns_that_fail_again_and_again(
    yard: Yard, where: str, proof: Callable[[int, int], int]
) -> None:
    """Before, inside and after the commit: then the result is stored already, and is not stored twice."""
    trap = Trap(yard, where, "raise")
    pool = yard.pool(count=2, failpoints=trap.failpoints).started()
    ids = [
        yard.shell("echo x >>traces; while ! test -e go; do sleep 0.02; done; echo fine"),
        yard.call("hold", "go", 1),
    ]
    yard.trace(least=2)
    (yard.home / "go").touch()
    for _ in range(proof(4, 12)):
        trap.set()
        until(trap.has_struck, 15, "another turn fails")
    for job in yard.completes(*ids, within_s=20):
        assert (job.attempts, job.interruptions) == (1, 0), yard.describe(job.id)
    assert yard.attempt(ids[0]).stdout == "fine\n"
    assert pool.process.poll() is None
    assert 1 <= pool.said().count("the queue cannot be used") <= 4  # one line in ten seconds
    until(lambda: "can be used again" in pool.said(), 10, "it says so")
    yard.completes(yard.shell("true"), yard.call("add", 1, 2))
    assert (len(yard.traces()), pool.stop()) == (2, 0)
