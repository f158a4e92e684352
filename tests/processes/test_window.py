"""How many jobs a pool starts, and how far ahead it claims."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from covey.core.turn import WorkerState
from covey.testing import until
from tests.kit.running import Yard


def held(yard: Yard) -> int:
    return yard.engine.status().counts["processing"]


@pytest.mark.parametrize("kind", ["command", "sync", "mixed"])
def test_four_workers_never_run_more_than_four_jobs_and_claim_none_ahead(yard: Yard, kind: str) -> None:
    pool = yard.pool(count=4).started()
    ids: list[int] = []
    for n in range(10):
        if kind != "sync":
            ids.append(yard.shell(f"echo {n} >>traces; while ! test -e go; do sleep 0.05; done"))
        if kind != "command":
            ids.append(yard.call("hold", "go", n))
    yard.trace(least=4)
    for _ in range(5):  # each turn of the pool would be a chance to claim too much
        yard.engine.store.ring("pool")
        yard.completes(yard.call("aspeak", "turn", kind="async"))
        assert (held(yard), len(yard.traces())) == (4, 4), pool.said()
    (yard.home / "go").touch()
    assert {job.attempts for job in yard.completes(*ids)} == {1}
    assert len(yard.traces()) == len(ids)


def test_never_more_than_four_start_at_a_time_while_jobs_come_and_go(yard: Yard) -> None:
    yard.pool(count=4).started()
    script = "echo + >>log; sleep 0.03; echo - >>log"
    ids = [*yard.shells([script] * 60), *yard.calls("in_and_out", [["log", 0.03]] * 60)]
    yard.completes(*ids)
    running = most = 0
    for sign in yard.traces("log"):
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert (running, most) == (0, 4)


def test_what_was_claimed_ahead_is_taken_back_from_a_stalled_worker_and_runs_once(yard: Yard) -> None:
    """Tiny tasks are claimed ahead; then one of them takes long, and those behind it must not wait."""
    yard.pool(count=2).started()
    yard.completes(*yard.calls("trace_or_hold", [["warm", "go", n, False] for n in range(500)]))
    ids = yard.calls("trace_or_hold", [["ran", "go", n, n == 100] for n in range(400)])
    until(lambda: len(yard.traces("ran")) == 400, 10, "all have started, the slow one too")
    assert [id for id in ids if yard.job(id).state != "completed"] == [ids[100]]
    (yard.home / "go").touch()
    assert {job.attempts for job in yard.completes(*ids)} == {1}
    assert Counter(yard.traces("ran")) == Counter(map(str, range(400)))


def test_a_frozen_worker_keeps_only_what_it_has_received(yard: Yard) -> None:
    pool = yard.pool(count=2).started()
    yard.completes(*yard.calls("trace_in", [["warm", n] for n in range(500)]))
    workers = [w.pid for w in until(lambda: _all_shown(yard), 5) if w.mode == "sync" and w.pid]
    os.kill(workers[0], signal.SIGSTOP)
    ids = yard.calls("trace_in", [["ran", n] for n in range(300)])
    until(lambda: held(yard) <= 1 and len(yard.traces("ran")) >= 299, 10, "the other worker does the rest")
    os.kill(workers[0], signal.SIGCONT)
    yard.completes(*ids)
    assert sorted(map(int, yard.traces("ran"))) == list(range(300))
    assert pool.stop() == 0


def test_nothing_waits_behind_an_async_task_that_blocks_its_loop(yard: Yard) -> None:
    yard.pool(count=2).started()
    blocker = yard.call("ablocks", "go", kind="async")
    worker = int(yard.trace("blocks")[0])
    ids = yard.calls("arest_in", [["ran", 0.01]] * 30, kind="async")
    assert {job.attempts for job in yard.completes(*ids, within_s=15)} == {1}
    assert str(worker) not in yard.traces("ran")
    assert yard.job(blocker).state == "processing"
    (yard.home / "go").touch()
    yard.completes(blocker)
    assert len(yard.traces("ran")) == 30


def test_several_pools_on_one_file_run_every_job_exactly_once(yard: Yard) -> None:
    for _ in range(3):
        yard.pool(count=2).started()
    ids = yard.calls("trace_in", [["ran", n] for n in range(600)])
    ids += yard.shells([f"echo {n} >>ran" for n in range(600, 660)])
    for job in yard.completes(*ids):
        assert (job.attempts, job.interruptions) == (1, 0)
    assert sorted(map(int, yard.traces("ran"))) == list(range(660))


def test_jobs_of_one_second_run_in_the_order_they_were_enqueued(yard: Yard) -> None:
    ids = yard.calls("trace_in", [["ran", n] for n in range(100)])
    yard.pool(count=1)
    yard.completes(*ids)
    assert list(map(int, yard.traces("ran"))) == list(range(100))


def test_a_pause_takes_effect_in_the_middle_of_a_backlog(yard: Yard) -> None:
    yard.pool(count=2).started()
    yard.calls("in_and_out", [["log", 0.01]] * 200)
    yard.trace("log", 20)
    yard.engine.pause("default")
    until(lambda: held(yard) == 0, 5, "what was held has ended")
    ran = len(yard.traces("log"))
    assert ran < 400
    yard.completes(yard.shell("true", queue="other"))
    assert len(yard.traces("log")) == ran
    yard.engine.resume("default")
    yard.trace("log", 400)


def _all_shown(yard: Yard) -> list[WorkerState] | None:
    """The workers, once the pool has shown them all as idle. A pid is told by the zygote, perhaps a moment later."""
    workers = [worker for pool in yard.engine.pool_views() for worker in pool.workers]
    return workers if workers and all(worker.state == "idle" and worker.pid for worker in workers) else None


def test_a_pool_with_a_frozen_worker_can_still_be_stopped(yard: Yard) -> None:
    pool = yard.pool("--grace", "0.3", count=1).started()
    workers = until(lambda: _all_shown(yard), 5)
    id = yard.call("rest", 1000)
    yard.trace()
    for worker in workers:
        assert worker.pid
        os.kill(worker.pid, signal.SIGSTOP)
    pool.send(signal.SIGTERM)
    assert pool.ended(5) == 1
    assert (yard.job(id).state, yard.job(id).attempts) == ("pending", 0)
