"""Serial children, serial queues and limited queues: what may not run beside what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.core.view import Edit, Filter
from covey.engine.engine import Engine
from covey.errors import InvalidInput
from covey.testing import FakeClock
from tests.kit import HandPool, after, child, command, python_task, sibling
from tests.kit.hand_pool import report

from .family import children, claims, parent_of, root, states


def ids_of(engine: Engine, id: int) -> list[int]:
    return [job.id for job in children(engine, id)]


# ── serial children ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_serial_children_run_one_at_a_time_in_order(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child("a"), child("b"), child("c"), report={"child_mode": "serial"})
    kids = ids_of(engine, id)
    assert states(engine, *kids) == ["pending", "blocked", "blocked"]
    for kid in kids:
        (claim,) = pool.claim(9)
        assert claim.id == kid
        pool.succeed(claim)
    assert states(engine, id) == ["completed"]


def test_a_serial_child_in_back_off_is_not_overtaken(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    id = root(engine, pool, child("a"), child("b"), child_mode="serial")
    pool.fail(pool.claim_one())
    assert pool.claim(9) == []
    clock.advance(10)
    pool.succeed(pool.claim_one())
    pool.succeed(pool.claim_one())
    assert states(engine, id) == ["completed"]


def test_after_a_dead_serial_child_the_later_ones_are_cancelled(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, *(child(max_attempts=1) for _ in range(4)), child_mode="serial")
    kids = ids_of(engine, id)
    pool.succeed(pool.claim_one())
    pool.fail(pool.claim_one(), "boom")
    assert states(engine, id, *kids) == ["dead", "completed", "dead", "cancelled", "cancelled"]
    assert f"job {kids[1]} dead: boom" in (engine.job(id).error or "")


def test_a_cancelled_serial_child_stops_those_behind_it_and_not_the_one_before(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, *(child() for _ in range(4)), child_mode="serial")
    kids = ids_of(engine, id)
    first = pool.claim_one()
    engine.cancel([kids[2]])
    assert states(engine, id, *kids) == ["waiting", "processing", "blocked", "cancelled", "cancelled"]
    pool.spawn(first, sibling("late"))
    late = ids_of(engine, id)[-1]
    assert states(engine, kids[1], late) == ["pending", "cancelled"]
    pool.succeed(pool.claim_one())
    assert states(engine, id) == ["dead"]


def test_a_sibling_of_a_serial_child_comes_last(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child("a"), child("b"), child_mode="serial")
    pool.spawn(pool.claim_one(), sibling("c"))
    kids = ids_of(engine, id)
    assert states(engine, *kids) == ["completed", "pending", "blocked"]
    pool.succeed(pool.claim_one())
    claim = pool.claim_one()
    assert claim.id == kids[2]
    pool.spawn(claim, sibling("d"))
    assert states(engine, id, ids_of(engine, id)[3]) == ["waiting", "pending"]


def test_a_serial_child_that_is_to_start_later_waits_for_its_turn_and_for_its_hour(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    id = root(engine, pool, child(), child(delay_s=60), child_mode="serial")
    kids = ids_of(engine, id)
    pool.succeed(pool.claim_one())
    assert states(engine, *kids) == ["completed", "scheduled"]
    clock.advance(60)
    assert pool.claim_one().id == kids[1]


# ── serial queues ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def serial(engine: Engine) -> Engine:
    engine.set_queue("default", serial=True)
    return engine


def test_a_serial_queue_runs_one_top_level_job_at_a_time(serial: Engine, connect: Callable[[], Engine]) -> None:
    made = serial.enqueue([command() for _ in range(3)])
    pools = [HandPool(serial), HandPool(connect())]
    for each in made:
        running = [(pool, claim) for pool in pools for claim in pool.claim(5)]
        assert [claim.id for _, claim in running] == [each.id]
        running[0][0].succeed(running[0][1])
        pools.reverse()


def test_its_children_run_in_parallel_and_nothing_else_beside_them(serial: Engine, pool: HandPool) -> None:
    first, second = serial.enqueue([command(), command()])
    pool.spawn(pool.claim_one(), *(child() for _ in range(3)))
    running = pool.claim(9)
    assert [claim.parent_id for claim in running] == [first.id] * 3
    for claim in running:
        assert pool.claim(9) == []
        pool.succeed(claim)
    assert pool.claim_one().id == second.id


@pytest.mark.parametrize("how", ["failed", "handed back", "snoozed", "lost", "stranded", "joining", "urgent"])
def test_the_lane_is_kept_until_the_tree_has_ended(serial: Engine, clock: FakeClock, how: str) -> None:
    pool = HandPool(serial)
    first, second = serial.enqueue([command(joins=True), command()])
    claim = pool.claim_one()
    match how:
        case "failed":
            pool.fail(claim)
        case "handed back":
            pool.report(claim, "taken_back")
        case "snoozed":
            pool.report(claim, "snooze", after_s=60.0)
        case "lost":
            pool.lose()
            pool = HandPool(serial)
        case "stranded":
            pool.beat()
        case "joining":
            pool.spawn(claim, child(delay_s=60))
            assert pool.claim(9) == []
            clock.advance(60)
            pool.succeed(pool.claim_one())
        case "urgent":
            pool.report(claim, "taken_back")
            serial.enqueue([command(priority=9)])
    clock.advance(70)
    (again,) = pool.claim(9)
    assert again.id == first.id
    assert "the lane belongs to" in serial.why(second.id).reason
    assert str(first.id) in serial.why(second.id).reason
    pool.succeed(again)
    assert len(pool.claim(9)) == 1


def test_a_cancelled_tree_keeps_the_lane_until_its_processes_are_gone(serial: Engine, pool: HandPool) -> None:
    first, second = serial.enqueue([command(), command()])
    pool.spawn(pool.claim_one(), child(), child())
    a, b = pool.claim(2)
    serial.cancel([first.id])
    assert pool.claim(9) == []
    pool.report(a, "gone")
    assert pool.claim(9) == []
    pool.report(b, "gone")
    assert pool.claim_one().id == second.id


def test_a_job_that_is_cancelled_in_the_line_does_not_hold_it(serial: Engine, pool: HandPool) -> None:
    _first, second, third = serial.enqueue([command(), command(), command()])
    claim = pool.claim_one()
    serial.cancel([second.id])
    pool.succeed(claim)
    assert pool.claim_one().id == third.id


def test_a_dead_tree_frees_the_lane_and_queues_for_it_again_when_retried(serial: Engine, pool: HandPool) -> None:
    first, second = serial.enqueue([command(), command()])
    pool.spawn(pool.claim_one(), child(max_attempts=1))
    kid = pool.claim_one()
    pool.fail(kid)
    assert states(serial, first.id) == ["dead"]
    running = pool.claim_one()
    assert running.id == second.id
    serial.retry([first.id])
    assert pool.claim(9) == []
    pool.succeed(running)
    assert pool.claim_one().id == kid.id


def test_a_child_sent_elsewhere_is_not_bound_and_a_guest_may_pass(serial: Engine, pool: HandPool) -> None:
    first, second = serial.enqueue([command(), command()])
    pool.spawn(pool.claim_one(), child(queue="other"))
    (guest_root,) = serial.enqueue([command(queue="free")])
    claims_ = {claim.queue: claim for claim in pool.claim(9)}
    assert set(claims_) == {"other", "free"}
    pool.spawn(claims_["free"], child(queue="default"))
    guest = pool.claim_one()
    assert (guest.queue, guest.root_id) == ("default", guest_root.id)
    assert states(serial, first.id, second.id) == ["waiting", "pending"]


def test_the_children_of_a_serial_queue_s_tree_keep_to_its_concurrency(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("default", serial=True, concurrency=2)
    engine.enqueue([command()])
    pool.spawn(pool.claim_one(), *(child() for _ in range(5)))
    seen = 0
    while running := pool.claim(9):
        assert len(running) <= 2
        seen += len(running)
        pool.turn(*(report(claim, "success") for claim in running))
    assert seen == 5


def test_an_uncle_in_the_same_serial_queue_comes_next(serial: Engine, pool: HandPool) -> None:
    """A second round that was enqueued meanwhile does not overtake it."""
    _first, second = serial.enqueue([command(), command()])
    pool.spawn(pool.claim_one(), child(), after("reduce", unique_key="reduce"))
    pool.succeed(pool.claim_one())
    claim = pool.claim_one()
    assert serial.job(claim.id).command == "reduce"
    pool.succeed(claim)
    assert pool.claim_one().id == second.id


def test_a_queue_becomes_serial_with_jobs_in_it_and_parallel_again(engine: Engine, pool: HandPool) -> None:
    made = engine.enqueue([command() for _ in range(4)])
    pool.spawn(pool.claim_one(), child(), child())
    engine.set_queue("default", serial=True)
    running = pool.claim(9)
    assert [claim.parent_id for claim in running] == [made[0].id] * 2
    pool.turn(*(report(claim, "success") for claim in running))
    (only,) = pool.claim(9)
    engine.set_queue("default", serial=False)
    assert [claim.id for claim in pool.claim(9)] == [each.id for each in made[2:]]
    assert only.id == made[1].id


def test_a_job_moved_out_of_the_lane_frees_it(serial: Engine, pool: HandPool) -> None:
    first, second = serial.enqueue([command(), command()])
    pool.fail(pool.claim_one(), after_s=1000.0)
    assert pool.claim(9) == []
    serial.edit(first.id, Edit(queue="elsewhere"))
    assert pool.claim_one().id == second.id


def test_an_idle_pool_only_reads_while_the_lane_is_somebody_else_s(serial: Engine, pool: HandPool) -> None:
    serial.enqueue([command() for _ in range(5)])
    HandPool(serial).claim_one()
    before = serial.pools()
    for _ in range(5):
        assert pool.claim(4) == []
    assert serial.pools() == before


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_runs_at_most_its_concurrency_over_all_pools(engine: Engine, connect: Callable[[], Engine]) -> None:
    engine.set_queue("default", concurrency=3)
    engine.enqueue([command() for _ in range(8)] + [command(queue="free") for _ in range(2)])
    pools = [HandPool(engine), HandPool(connect())]
    running = [(pool, claim) for pool in pools for claim in pool.claim(5)]
    assert sorted(claim.queue for _, claim in running) == ["default"] * 3 + ["free"] * 2
    limited = [(pool, claim) for pool, claim in running if claim.queue == "default"]
    waiting = engine.jobs(Filter(states=("pending",))).jobs[0]
    assert "at most 3 at a time" in engine.why(waiting.id).reason
    limited[0][0].succeed(limited[0][1])
    assert [len(pool.claim(5)) for pool in pools] == [1, 0]


def test_a_cancelled_job_occupies_the_limit_until_its_processes_are_gone(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("default", concurrency=1)
    engine.enqueue([command(), command()])
    claim = pool.claim_one()
    engine.cancel([claim.id])
    assert pool.claim(9) == []
    pool.report(claim, "gone")
    assert len(pool.claim(9)) == 1


def test_a_limit_can_be_changed_and_lifted(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("default", concurrency=1)
    engine.enqueue([command() for _ in range(6)])
    assert len(pool.claim(9)) == 1
    engine.set_queue("default", concurrency=3)
    assert len(pool.claim(9)) == 2
    engine.set_queue("default", concurrency=None)
    assert len(pool.claim(9)) == 3


def test_a_limit_counts_all_kinds_together(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("default", concurrency=2)
    engine.enqueue([command(), python_task("t"), python_task("u", kind="async")])
    assert len(pool.claim(9)) == 2


def test_set_queue_changes_only_what_is_told_and_shows_it(engine: Engine) -> None:
    engine.set_queue("q", serial=True, concurrency=4, max_depth=2)
    engine.set_queue("q", max_depth=5)
    (view,) = engine.queues()
    assert (view.name, view.serial, view.concurrency, view.max_depth) == ("q", True, 4, 5)
    engine.set_queue("q", concurrency=None, serial=False)
    (view,) = engine.queues()
    assert (view.serial, view.concurrency, view.max_depth) == (False, None, 5)
    assert engine.events()[0].kind == "queue_set"


@pytest.mark.parametrize("rules", [{"concurrency": 0}, {"concurrency": True}, {"max_depth": -1}, {"max_depth": "2"}])
def test_set_queue_refuses_what_makes_no_sense(engine: Engine, rules: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        engine.set_queue("q", **rules)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        engine.set_queue("no good", serial=True)
    assert engine.queues() == []


def test_two_pools_cannot_both_take_a_free_lane(serial: Engine, connect: Callable[[], Engine]) -> None:
    serial.enqueue([command(), command()])
    pools = [HandPool(serial), HandPool(connect())]
    assert sorted(len(pool.claim(3)) for pool in pools) == [0, 1]


def test_a_parent_in_a_limited_queue_needs_no_place_while_it_waits(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("default", concurrency=1)
    id, kids = parent_of(engine, pool, 3, joins=True)
    for _ in kids:
        pool.succeed(claims(pool, 1).popitem()[1])
    pool.succeed(pool.claim_one())
    assert states(engine, id) == ["completed"]
