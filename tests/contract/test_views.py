"""What can be seen: pages, counts, events, pools."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from covey.core.label import suffix
from covey.core.machine import SECOND
from covey.core.model import STATES, Output
from covey.core.turn import WorkerState
from covey.core.view import Filter, rfc3339
from covey.engine.engine import Engine
from covey.errors import InvalidInput
from covey.testing import FakeClock
from tests.kit import HandPool, check_queue, child, command, python_task

from .family import root


def test_paging_misses_and_repeats_no_job_while_others_come_and_go(
    engine: Engine, proof: Callable[[int, int], int]
) -> None:
    count = proof(1000, 20_000)
    ids = [made.id for made in engine.enqueue([command() for _ in range(count)])]
    dice, seen, before = Random(2), [], None
    while True:
        page = engine.jobs(Filter(before=before, limit=dice.choice([1, 7, 50, 200])))
        seen += [job.id for job in page.jobs]
        engine.enqueue([command()])  # newer ones do not push anything onto the next page
        if page.next is None:
            break
        before = page.next
    assert seen == ids[::-1]


def test_the_last_page_says_so(engine: Engine) -> None:
    engine.enqueue([command() for _ in range(10)])
    assert engine.jobs(Filter(limit=10)).next is None
    assert engine.jobs(Filter(limit=9)).next is not None
    assert engine.jobs(Filter(before=1)).jobs == []


def test_filters_name_states_queue_task_batch_and_ids(engine: Engine, pool: HandPool) -> None:
    one, two, three, four = (
        made.id
        for made in engine.enqueue(
            [
                command(queue="a", batch="x", max_attempts=1, priority=9),
                python_task("t", queue="a"),
                command(queue="b", batch="x", priority=8),
                command(queue="b", delay_s=5),
            ]
        )
    )
    pool.fail(pool.claim_one())
    pool.claim_one()
    ids = lambda **wanted: [job.id for job in engine.jobs(Filter(**wanted)).jobs]  # noqa: E731
    assert ids(states=("dead",)) == [one]
    assert ids(states=("processing",)) == [three]
    assert ids(states=("dead", "scheduled")) == [four, one]
    assert ids(queue="a") == [two, one]
    assert ids(task="t") == [two]
    assert ids(batch="x") == [three, one]
    assert ids(batch="x", states=("processing",), queue="b") == [three]
    assert ids(ids=(two, four, 999)) == [four, two]
    assert ids(ids=()) == []
    assert ids(queue="nothing") == []


def test_a_bad_filter_is_refused(engine: Engine) -> None:
    for wanted in (Filter(states=("done",)), Filter(limit=0), Filter(limit=10_001)):
        with pytest.raises(InvalidInput):
            engine.jobs(wanted)


def test_status_counts_every_state_and_every_queue(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    assert engine.status().counts == dict.fromkeys(STATES, 0)
    engine.enqueue([command(queue="a", priority=n, max_attempts=1 if n == 9 else 3) for n in (9, 8, 7, 6)])
    engine.enqueue([command(queue="b", delay_s=100)])
    (victim,) = engine.enqueue([command(queue="b")])
    pool.fail(pool.claim_one())
    pool.fail(pool.claim_one())
    pool.succeed(pool.claim_one())
    engine.cancel([victim.id])
    clock.advance(1)
    status = engine.status()
    expected = {"dead": 1, "failed": 1, "completed": 1, "pending": 1, "scheduled": 1, "cancelled": 1}
    assert status.counts == dict.fromkeys(STATES, 0) | expected
    assert {queue.name: queue.counts for queue in status.queues} == {
        "a": {"dead": 1, "failed": 1, "completed": 1, "pending": 1},
        "b": {"scheduled": 1, "cancelled": 1},
    }
    assert (status.pools, status.oldest_pending_s) == (1, 1.0)
    assert status.next_run_at == rfc3339(clock() + 1 * SECOND)
    assert status.durability == "full"
    assert status.database_id == engine.database_id
    assert check_queue(engine) == []


def test_status_warns_of_what_a_person_should_know(engine: Engine, clock: FakeClock) -> None:
    assert (engine.status().health, engine.status().notes) == ("fine", [])
    engine.enqueue([command(queue="a", max_attempts=1)])
    assert "no worker runs" in " ".join(engine.status().notes)
    engine.pause("a")
    assert "paused: a" in engine.status().notes
    engine.resume("a")
    pool = HandPool(engine)
    pool.fail(pool.claim_one())
    assert "1 dead letter" in " ".join(engine.status().notes)
    clock.advance(31)
    assert "pools are gone" in " ".join(engine.status().notes)


def test_events_are_newest_first_and_can_be_asked_per_job(engine: Engine, pool: HandPool) -> None:
    one, two = engine.enqueue([command(), command()])
    engine.cancel([one.id])
    engine.retry([one.id])
    engine.cancel([two.id])
    assert [event.kind for event in engine.events(one.id)] == ["retried", "cancelled"]
    assert [event.id for event in engine.events()] == sorted((event.id for event in engine.events()), reverse=True)
    assert len(engine.events(limit=2)) == 2
    assert "pool_started" in [event.kind for event in engine.events()]


def test_pool_views_show_pools_until_they_leave(engine: Engine, clock: FakeClock) -> None:
    pool = HandPool(engine, name="p", queues=("a", "b"), kinds=("command",), count=3)
    clock.advance(12)
    (view,) = engine.pool_views()
    assert (view.name, view.queues, view.kinds, view.count, view.host) == ("p", ["a", "b"], ["command"], 3, "host-a")
    assert (view.beat_age_s, view.held, view.state) == (12.0, 0, "running")
    engine.leave(pool.id)
    assert engine.pool_views() == []


def test_times_are_rfc3339_in_utc(engine: Engine, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    assert engine.job(made.id).created_at == "2026-01-01T00:00:00.000Z"
    assert rfc3339(1) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(None) is None


def test_limits_of_pages_are_refused_beyond_ten_thousand(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    for limit in (1, 10_000):
        assert len(engine.jobs(Filter(limit=limit)).jobs) == 1
        assert engine.tree(made.id, limit=limit).next is None
    for limit in (0, 10_001):
        with pytest.raises(InvalidInput):
            engine.jobs(Filter(limit=limit))
        with pytest.raises(InvalidInput):
            engine.tree(made.id, limit=limit)


def test_a_page_of_children_says_where_the_next_begins(engine: Engine, pool: HandPool) -> None:
    one = root(engine, pool, *(child(f"c{n}") for n in range(3)))
    branch = engine.tree(one, limit=2)
    assert ([job.command for job in branch.children], branch.next) == (["c0", "c1"], 1)
    rest = engine.tree(one, limit=2, after=1)
    assert ([(job.command, job.child_no, job.depth) for job in rest.children], rest.next) == ([("c2", 2, 1)], None)
    pool.succeed(pool.claim_one())
    told = engine.job(one).children
    assert (told.total, told.unfinished, told.failed, told.ended, told.progress) == (3, 2, 0, 1, 1 / 3)
    assert engine.job(rest.children[0].id).children.progress is None


def test_a_job_that_runs_shows_who_holds_it_and_until_when(engine: Engine, clock: FakeClock) -> None:
    pool = HandPool(engine, name="p", lease_s=30.0)
    spec = command("ls", cwd="/", key="k", batch="b", labels={"a": "b"}, timeout_s=9.0, max_attempts=2, priority=3)
    (made,) = engine.enqueue([spec])
    began = clock()
    clock.advance(1)
    pool.claim_one()
    view = engine.job("k")
    assert (view.id, view.command, view.args, view.cwd) == (made.id, "ls", {"command": "ls"}, "/")
    assert (view.batch, view.labels, view.timeout, view.max_attempts, view.max_retries) == ("b", {"a": "b"}, 9.0, 2, 2)
    assert (view.state, view.attempts, view.pool, view.locked_by, view.fence) == ("processing", 1, pool.id, "p", 1)
    assert view.locked_until == rfc3339(clock() + 30 * SECOND)
    assert (view.created_at, view.started_at) == (rfc3339(began), None)  # no worker has said so yet
    assert (view.finished_at, view.retry_at, view.worker, view.kind, view.phase) == (None, None, None, "command", "run")


def test_an_ended_job_and_its_attempts_keep_who_ran_them_and_where(engine: Engine, clock: FakeClock) -> None:
    pool, other = HandPool(engine, name="p", host="here"), HandPool(engine, name="q", host="there")
    (made,) = engine.enqueue([command(max_attempts=2)])
    pool.fail(pool.claim_one(), worker="shell-1" + suffix("p", "here"))
    failed = engine.job(made.id)
    assert (failed.worker, failed.pool_name, failed.host, failed.pool) == ("shell-1", "p", "here", None)
    clock.advance(60)
    claim = other.claim_one()
    running = engine.job(made.id)  # whoever ran it before does not run it now
    assert (running.worker, running.pool_name, running.host, running.pool) == (None, "q", "there", other.id)
    other.succeed(claim, worker="shell-7" + suffix("q", "there"))
    other.source.leave(other.id)
    ended = engine.job(made.id)
    assert (ended.worker, ended.pool_name, ended.host, ended.locked_by) == ("shell-7", "q", "there", None)
    assert engine.jobs(Filter()).jobs[0] == ended
    assert [(run.worker, run.pool_name, run.host) for run in engine.history(made.id)] == [("shell-1", "p", "here")]


def test_what_older_pools_wrote_of_a_worker_is_its_name_alone(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.succeed(pool.claim_one(), worker="shell-1")
    view = engine.job(made.id)
    assert (view.worker, view.pool_name, view.host) == ("shell-1", None, None)


def test_a_failed_job_shows_what_it_said_and_when_it_is_tried_again(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command(max_attempts=2)])
    output = Output(b"out\xff", b"err", 1, 2)
    pool.fail(pool.claim_one(), "boom", exit_code=7, detail="d", worker="w", started_at=5, finished_at=6, output=output)
    view = engine.job(made.id)
    assert (view.exit_code, view.error, view.locked_by, view.locked_until) == (7, "boom", None, None)
    assert view.retry_at == view.run_at == rfc3339(clock() + 2 * SECOND)
    (told,) = engine.history(made.id)
    assert (told.number, told.fence, told.outcome, told.worker, told.pool) == (1, 1, "failure", "w", pool.id)
    assert (told.started_at, told.finished_at, told.exit_code) == (rfc3339(5), rfc3339(6), 7)
    assert (told.error, told.detail, told.stdout, told.stderr) == ("boom", "d", "out\ufffd", "err")
    assert (told.stdout_dropped, told.stderr_dropped) == (1, 2)


def test_pools_and_their_workers_are_shown_as_they_said(engine: Engine, clock: FakeClock) -> None:
    pool = HandPool(engine, name="p", queues=("a",), types={"a": 2}, app="m:app", log="/l", count=2)
    registered = clock()
    busy = WorkerState("s1", "sync", "busy", 11, 12, 13, "a", 14, 15, 16, 17, 18, 19, "e")
    idle = WorkerState("c1", "command", "idle", None, None, 13)
    pool.turn(workers=[busy, idle], given_up={"a (async)": "x"})
    clock.advance(4)
    (view,) = engine.pool_views()
    assert (view.id, view.name, view.host, view.boot, view.pid, view.ticks) == (
        pool.id,
        "p",
        "host-a",
        "boot-a",
        4242,
        1,
    )
    assert (view.queues, view.kinds, view.count, view.types) == (["a"], ["command", "sync", "async"], 2, {"a": 2})
    assert (view.app, view.log, view.given_up, view.state, view.held) == (
        "m:app",
        "/l",
        {"a (async)": "x"},
        "running",
        0,
    )
    assert (view.beat_age_s, view.lease_s, view.registered_at, view.version) == (4.0, 30.0, rfc3339(registered), "test")
    first, second = sorted(view.workers, key=lambda worker: worker.name)
    assert (first.id, first.kind, first.mode, first.queue, first.state) == (
        f"{pool.id}/c1",
        "command",
        None,
        None,
        "idle",
    )
    assert (second.id, second.kind, second.mode, second.queue) == (f"{pool.id}/s1", "python", "sync", "a")
    assert (second.pool, second.host, second.state, second.pid, second.ticks) == (pool.id, "host-a", "busy", 11, 12)
    assert (second.started_at, second.job_id, second.fence, second.busy_since) == (rfc3339(13), 14, 15, rfc3339(16))
    assert (second.done, second.failed, second.memory, second.error, second.beat_age_s) == (17, 18, 19, "e", 4.0)
    engine.stop_pools([pool.id])
    assert engine.pool_views()[0].state == "stopping"


def test_a_pool_that_starts_and_leaves_is_in_the_events(engine: Engine) -> None:
    pool = HandPool(engine, name="p")
    pool.source.leave(pool.id)
    assert [(event.kind, event.pool, event.text) for event in engine.events()] == [
        ("pool_stopped", pool.id, None),
        ("pool_started", pool.id, "p (pid 4242 on host-a)"),
    ]


def test_the_status_counts_what_there_is(engine: Engine, clock: FakeClock) -> None:
    assert (engine.status().oldest_pending_s, engine.status().next_run_at) == (None, None)
    pool = HandPool(engine)
    states = ("starting", "idle", "busy", "stopping", "dead")
    pool.turn(workers=[WorkerState(state, "command", state, None, None, 1) for state in states])
    engine.enqueue([command(queue="a"), command(queue="b", delay_s=60), python_task("t", queue="a")])
    due = clock() + 60 * SECOND
    clock.advance(5)
    status = engine.status()
    assert (status.pools, status.workers, status.oldest_pending_s) == (1, 4, 5.0)
    assert (status.next_run_at, status.durability, status.database_id) == (rfc3339(due), "full", engine.database_id)
    assert (status.counts["pending"], status.counts["scheduled"], status.counts["dead"]) == (2, 1, 0)
    assert {queue.name: queue.counts for queue in status.queues} == {"a": {"pending": 2}, "b": {"scheduled": 1}}
    assert [finding.level for finding in status.findings] == ["warning"]
    assert (status.health, status.notes) == (
        "warning",
        ["1 worker of pool 1 could not start, last dead: None; others are tried in their place"],
    )
    engine.set_setting("durability", "normal")
    assert engine.status().durability == "normal"
