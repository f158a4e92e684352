"""Zygotes that are frozen, and those who must not outlive pool and zygote."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from covey.pool.silence import FROZEN, LOADING, LOOK_S, Silence
from covey.testing import until
from tests.kit.running import RunningPool, Yard, gone

STORES = ("file", "postgres")
SOON = {"backoff_base": 1.0, "backoff_cap_s": 0.0}


def frozen(pool: RunningPool) -> int:
    """Its zygote, stopped."""
    zygote = pool.zygote
    os.kill(zygote, signal.SIGSTOP)
    return zygote


# ── frozen ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("task", "kind"), [("shell", "command"), ("hold", "sync"), ("meet", "async")])
def test_a_job_whose_worker_dies_below_a_frozen_zygote_runs_again_and_the_others_go_on(
    yard: Yard, task: str, kind: Any
) -> None:
    pool = yard.pool(count=2).started()
    goes_on = yard.shell("echo $$ >>going; until test -e go; do sleep 0.02; done")
    yard.trace("going")
    if task == "shell":
        id = yard.shell("echo $$ >>traces; until test -e go; do sleep 0.02; done", **SOON)
        (child,) = map(int, yard.trace())
        worker = _parent(child)
    else:
        id = yard.call(*(("hold", "go", 1) if task == "hold" else ("meet", "traces", 2)), kind=kind, **SOON)
        yard.trace()
        worker, child = pool.worker_of(id), 0
    zygote = frozen(pool)
    os.kill(worker, signal.SIGKILL)
    yard.trace(least=2, within_s=30)
    assert yard.job(id).attempts == 2
    assert gone(zygote)
    assert not child or gone(child)
    assert "the zygote is frozen" in pool.said()
    (yard.home / "go").touch()
    (first, second) = yard.completes(goes_on, id)
    assert (first.attempts, first.interruptions, second.interruptions) == (1, 0, 0)
    yard.completes(yard.shell("true"), yard.call("add", 1, 2))
    assert pool.stop() == 0, pool.said()


def test_a_time_out_holds_below_a_frozen_zygote(yard: Yard) -> None:
    """The function cannot be stopped, so its worker is killed, and nobody but the zygote could tell of that."""
    pool = yard.pool(count=1).started()
    id = yard.call("hold_the_gil", 1000, timeout_s=1.0, max_attempts=1)
    yard.trace()
    frozen(pool)
    (job,) = yard.ends(id, within_s=40)
    assert (job.state, job.error) == ("dead", "timed out after 1 s")


def test_workers_that_a_frozen_zygote_was_asked_for_come_from_another(yard: Yard) -> None:
    pool = yard.pool("--max-jobs", "1", count=1, commands_only=True).started()
    zygote = frozen(pool)
    yard.completes(*yard.shells(["true"] * 2), within_s=40)  # the second one's worker has to be born first
    assert gone(zygote)
    assert pool.stop() == 0, pool.said()


def test_a_pool_with_a_frozen_zygote_can_be_stopped(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    everybody = pool.processes()
    frozen(pool)
    assert pool.stop() == 0, pool.said()
    assert gone(*everybody)


def test_silence_counts_looks_and_not_the_hours_of_a_machine_that_was_suspended() -> None:
    silence = Silence()
    assert silence.at is None  # nobody looks while nothing is owed
    silence.owes("sync-1", 100.0)
    assert silence.at == 100.0 + LOOK_S
    assert not silence.look(100.5)
    assert not silence.look(90_000.0)
    assert not silence.look(180_000.0)
    silence.heard("sync-2")  # it is slow, but it speaks
    assert [silence.look(180_001.0 + n) for n in range(FROZEN)] == [False] * (FROZEN - 1) + [True]
    assert not silence.look(180_001.0 + FROZEN)  # a debugger has it: as long again
    silence.heard("sync-1")
    assert silence.at is None
    assert not silence.look(200_000.0)


def test_a_zygote_that_imports_the_app_may_be_silent_for_as_long_as_an_import_may_take() -> None:
    silence = Silence()
    silence.begin(loads=True)
    silence.owes("sync-1", 0.0)
    assert [silence.look(1.0 + n) for n in range(LOADING)] == [False] * (LOADING - 1) + [True]
    silence.begin(loads=True)
    silence.owes("sync-1", 0.0)
    silence.heard(None)  # it has imported it
    assert [silence.look(100.0 + n) for n in range(FROZEN)] == [False] * (FROZEN - 1) + [True]


# ── killed together with the pool ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", ["pool", "zygote"])
def test_what_a_function_has_started_does_not_outlive_pool_and_zygote(yard: Yard, first: str) -> None:
    """Also without its parents, its session and its mark; and nothing else does."""
    pool = yard.pool(count=2).started()
    yard.call("holds_the_gil_beside_children")
    yard.shell("echo $$ >>pids; env -i setsid sleep 1000 & wait")
    children = list(map(int, yard.trace("children", 2)))
    yard.trace()
    everything = [*pool.processes(), *children, *map(int, yard.trace("pids"))]
    doomed = [pool.pid, pool.zygote] if first == "pool" else [pool.zygote, pool.pid]
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)
    pool.process.wait()
    until(lambda: gone(*everything), 5, "all of them are gone")


def test_a_frozen_zygote_does_not_keep_a_killed_pools_processes_alive(yard: Yard) -> None:
    pool = yard.pool(count=1).started()
    yard.call("holds_the_gil_beside_children")
    children = list(map(int, yard.trace("children", 2)))
    everything = [*pool.processes(), *children]
    frozen(pool)
    pool.kill()
    until(lambda: gone(*everything), 10, "all of them are gone")


def test_a_pool_whose_guard_is_killed_works_and_ends_as_before(yard: Yard) -> None:
    pool = yard.pool(count=2).started()
    zygote, everybody = pool.zygote, pool.processes()
    os.kill(pool.guard, signal.SIGKILL)
    id = yard.call("hold", "go", 1)
    yard.trace()
    os.kill(pool.worker_of(yard.shell("echo $$ >>traces; sleep 1000", max_attempts=1)), signal.SIGKILL)
    yard.completes(yard.shell("true"))
    assert not gone(zygote)
    os.kill(zygote, signal.SIGKILL)
    yard.completes(yard.shell("true"))
    (yard.home / "go").touch()
    yard.completes(id)
    assert pool.stop() == 0, pool.said()
    assert gone(*everybody)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return int(stat.read().rpartition(b") ")[2].split()[1])
