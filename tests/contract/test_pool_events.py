"""Client.pool_events, and what pools tell about themselves for people to see."""

from __future__ import annotations

from covey.core.turn import Capacity, PoolEvent, WorkerState
from covey.core.view import rfc3339
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, command, python_task


def test_events_of_a_pool_are_kept_newest_first(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    at = clock()
    pool.turn(events=[PoolEvent(at, "starting", "shell-1"), PoolEvent(at + 5, "failed", "shell-1", "no memory")])
    found = [(event.kind, event.worker, event.text) for event in engine.pool_events()]
    assert found[:2] == [("failed", "shell-1", "no memory"), ("starting", "shell-1", None)]
    assert engine.pool_events()[0].at == rfc3339(at + 5)
    assert {event.pool for event in engine.pool_events()} == {pool.id}


def test_events_alone_are_worth_a_turn(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    """A turn without anything else only reads; this one must write."""
    pool.turn(wants=[], events=[PoolEvent(clock(), "stopped", "shell-1")])
    assert engine.pool_events()[0].kind == "stopped"


def test_events_can_be_asked_for_by_pool_and_followed(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    other = HandPool(engine)
    pool.turn(events=[PoolEvent(clock(), "ready", "a")])
    other.turn(events=[PoolEvent(clock(), "ready", "b")])
    last = engine.pool_events(limit=1)[0]
    assert last.worker == "b"
    assert [event.worker for event in engine.pool_events(pool.id) if event.kind == "ready"] == ["a"]
    assert engine.pool_events(after=last.id) == []
    pool.turn(events=[PoolEvent(clock(), "stopped", "a")])
    assert [event.kind for event in engine.pool_events(after=last.id)] == ["stopped"]


def test_events_of_jobs_are_not_among_them(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    pool.lose()
    assert "interrupted" in [event.kind for event in engine.events(made.id)]
    assert "interrupted" not in [event.kind for event in engine.pool_events()]
    assert "pool_lost" in [event.kind for event in engine.pool_events()]


def test_workers_of_a_lost_pool_are_said_to_have_lost_their_parent(engine: Engine, pool: HandPool) -> None:
    alive = WorkerState("shell-1", "command", "idle", 77, 5, 1)
    fallen = WorkerState("shell-2", "command", "dead", 78, 5, 1, error="no memory")
    pool.turn(workers=[alive, fallen])
    pool.lose()
    died = [event.worker for event in engine.pool_events() if event.kind == "parent_died"]
    assert died == ["shell-1"]


def test_what_cannot_start_is_shown_until_it_can(engine: Engine, pool: HandPool) -> None:
    assert engine.pool_views()[0].given_up == {}
    pool.turn(workers=[], given_up={"sync": "no module 'shop'"})
    assert engine.pool_views()[0].given_up == {"sync": "no module 'shop'"}
    pool.turn(workers=[], given_up={})
    assert engine.pool_views()[0].given_up == {}


def test_a_pool_says_its_types_and_where_its_log_is(engine: Engine) -> None:
    HandPool(engine, queues=("notebook", "shell"), types={"notebook": 8, "shell": 4}, log="/var/log/covey/a.log")
    (view,) = engine.pool_views()
    assert view.types == {"notebook": 8, "shell": 4}
    assert view.log == "/var/log/covey/a.log"


def test_each_worker_type_is_filled_from_its_own_queue(engine: Engine) -> None:
    engine.enqueue([command(queue="shell") for _ in range(5)] + [command(queue="notebook") for _ in range(5)])
    pool = HandPool(engine, queues=("notebook", "shell"))
    wants = [Capacity(("notebook",), {"command": 3}, 3), Capacity(("shell",), {"command": 1}, 1)]
    claims = pool.turn(wants=wants).claims
    assert sorted(claim.queue for claim in claims) == ["notebook"] * 3 + ["shell"]


def test_a_type_without_room_leaves_its_jobs_and_others_go_on(engine: Engine) -> None:
    engine.enqueue([command(queue="shell"), python_task(queue="notebook")])
    pool = HandPool(engine, queues=("notebook", "shell"))
    wants = [Capacity(("notebook",), {"sync": 0}, 0), Capacity(("shell",), {"command": 2}, 2)]
    assert [claim.queue for claim in pool.turn(wants=wants).claims] == ["shell"]


def test_a_type_that_is_full_hides_nothing_from_another_that_shares_its_queues(engine: Engine) -> None:
    """Two queues, so that they are merged. Nobody has looked for the first, so nothing is known to be empty."""
    engine.enqueue([python_task(queue="shell"), python_task(queue="notebook")])
    pool = HandPool(engine, queues=("notebook", "shell"))
    full, free = (Capacity(("notebook", "shell"), {"sync": 2}, 2, bound=bound) for bound in (0, 2))
    assert [claim.queue for claim in pool.turn(wants=[full, free]).claims] == ["shell", "notebook"]


def test_a_pool_with_types_is_drained_when_each_of_them_is(engine: Engine) -> None:
    engine.enqueue([command(queue="shell")])
    pool = HandPool(engine, queues=("notebook", "shell"))
    shell, notebook = Capacity(("shell",), {"command": 0}, 0), Capacity(("notebook",), {"command": 1}, 1)
    assert not pool.turn(wants=[shell, notebook], draining=True).drained
    assert pool.turn(wants=[notebook], draining=True).drained
