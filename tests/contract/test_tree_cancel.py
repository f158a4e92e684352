"""Cancel flows down, removal and retention take whole trees, and a tree may run out of time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.core.machine import SECOND
from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import InvalidInput, NotFound, Refused, StillStopping
from covey.testing import FakeClock
from tests.kit import HandPool, after, check_queue, child, command, sibling
from tests.kit.hand_pool import report

from .family import children, claims, parent_of, root, states

DAY = 86_400.0


def grow(engine: Engine, pool: HandPool, depth: int, width: int) -> int:
    """A root with so many levels below it, every job but the last level's with so many children."""
    engine.set_queue("default", max_depth=depth)
    (made,) = engine.enqueue([command("root")])
    for _ in range(depth):
        level = pool.claim(100_000)
        pool.turn(*(report(claim, "success", spawned=[child() for _ in range(width)]) for claim in level))
    return made.id


def total(engine: Engine) -> int:
    return sum(engine.status().counts.values())


# ── cancel ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cancelling_the_root_cancels_every_descendant(
    engine: Engine, pool: HandPool, proof: Callable[[int, int], int]
) -> None:
    id = grow(engine, pool, 5, proof(2, 4))
    running = pool.claim(7)
    (change,) = engine.cancel([id])
    assert (change.state, change.was) == ("cancelled", "waiting")
    counts = engine.status().counts
    assert (counts["cancelled"], total(engine)) == (counts["cancelled"], counts["cancelled"])
    assert len(pool.beat(*running).cancels) == 7
    pool.turn(*(report(claim, "gone") for claim in running))
    assert engine.pool_views()[0].held == 0
    assert pool.claim(9) == []
    assert check_queue(engine) == []
    (kid, *_) = children(engine, id)
    assert kid.error == f"cancelled with job {id}"
    assert str(id) in engine.why(kid.id).reason


def test_a_running_descendant_is_cancelled_too_and_cannot_revive_the_tree(engine: Engine, pool: HandPool) -> None:
    id, (kid,) = parent_of(engine, pool, 1)
    claim = pool.claim_one()
    engine.cancel([id])
    assert (engine.job(kid).state, engine.job(kid).pool) == ("cancelled", pool.id)
    pool.spawn(claim, sibling(), result="1")
    assert states(engine, id, kid) == ["cancelled", "cancelled"]
    assert (engine.job(kid).pool, engine.job(kid).result, total(engine)) == (None, None, 2)


def test_what_has_ended_below_keeps_its_end(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 3)
    running = claims(pool, 2)
    pool.succeed(running[kids[0]])
    pool.fail(running[kids[1]])
    engine.cancel([id])
    assert states(engine, *kids) == ["completed", "dead", "cancelled"]
    assert (engine.job(id).children.unfinished, engine.job(id).children.failed) == (0, 2)


def test_a_cancelled_child_counts_as_not_completed(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 2)
    engine.cancel([kids[0]])
    assert states(engine, id) == ["waiting"]
    pool.succeed(pool.claim_one())
    assert states(engine, id) == ["dead"]
    assert f"job {kids[0]} cancelled" in (engine.job(id).error or "")


def test_a_parent_and_its_children_may_be_cancelled_in_one_request(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 2)
    changes = engine.cancel([*kids, id])
    assert [(change.id, change.state) for change in changes] == [(each, "cancelled") for each in [*kids, id]]
    with pytest.raises(Refused):
        engine.cancel([kids[0]])


def test_a_cancelled_waiting_parent_s_join_never_runs(engine: Engine, pool: HandPool) -> None:
    id, _ = parent_of(engine, pool, 1, joins=True, on_error="collect")
    claim = pool.claim_one()
    engine.cancel([id])
    pool.report(claim, "gone")
    assert pool.claim(9) == []
    assert states(engine, id) == ["cancelled"]


# ── remove and prune ────────────────────────────────────────────────────────────────────────────────────────────────


def test_remove_takes_an_ended_root_with_its_whole_tree(engine: Engine, pool: HandPool) -> None:
    id = grow(engine, pool, 3, 2)
    (other,) = engine.enqueue([command(delay_s=9)])
    with pytest.raises(Refused):
        engine.remove([id])
    engine.cancel([id])
    engine.remove([id])
    assert [job.id for job in engine.jobs(Filter()).jobs] == [other.id]


def test_a_child_is_removed_only_with_its_root(engine: Engine, pool: HandPool) -> None:
    id, (kid,) = parent_of(engine, pool, 1)
    pool.succeed(pool.claim_one())
    with pytest.raises(Refused, match=f"its root {id}"):
        engine.remove([kid])
    assert total(engine) == 2


def test_a_forced_removal_of_a_child_is_refused_before_anything_is_cancelled(engine: Engine, pool: HandPool) -> None:
    id, (kid, other) = parent_of(engine, pool, 2)
    (lonely,) = engine.enqueue([command()])
    for refs in ([kid], [lonely.id, kid], [kid, lonely.id]):
        with pytest.raises(Refused, match=f"job {kid} is a child; remove its root {id} instead"):
            engine.remove(refs, force=True)
        assert states(engine, id, kid, other, lonely.id) == ["waiting", "pending", "pending", "pending"]
    assert [change.state for change in engine.remove([kid, id], force=True)] == ["removed", "removed"]
    assert [job.id for job in engine.jobs(Filter()).jobs] == [lonely.id]


def test_a_tree_with_a_process_left_is_not_removed(engine: Engine, pool: HandPool) -> None:
    id, (kid,) = parent_of(engine, pool, 1)
    claim = pool.claim_one()
    with pytest.raises(StillStopping, match=str(kid)):
        engine.remove([id], force=True)
    assert states(engine, id) == ["cancelled"]
    pool.report(claim, "gone")
    engine.remove([id])
    assert total(engine) == 0


def test_retention_takes_whole_trees_by_their_root_leaves_first_and_bounded(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    id = grow(engine, pool, 2, 40)
    engine.cancel([id])
    (live,) = engine.enqueue([command()])
    claim = pool.claim_one()
    pool.spawn(claim, child(), child())
    pool.succeed(pool.claim_one())
    clock.advance(2 * DAY)
    left = []
    for _ in range(5):
        clock.advance(31)
        pool.turn(workers=[])
        left.append(total(engine))
        assert engine.store.dialect.problems() == []  # type: ignore[attr-defined]
    assert list(dict.fromkeys(left)) == [3 + 1641, 3 + 641, 3]  # a thousand at a time, the root among the last
    assert states(engine, live.id) == ["waiting"]
    with pytest.raises(NotFound):
        engine.job(id)


def test_a_tree_is_pruned_when_its_root_ended_long_ago_not_its_children(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    id, kids = parent_of(engine, pool, 2)
    a, b = claims(pool, 2).values()
    pool.succeed(a)
    clock.advance(30 * DAY)
    for _ in range(3):
        clock.advance(31)
        pool.beat(b)
    assert total(engine) == 3
    pool.succeed(b)
    clock.advance(6 * DAY)
    pool.beat()
    assert states(engine, id, *kids) == ["completed"] * 3
    clock.advance(2 * DAY)
    for _ in range(3):
        clock.advance(31)
        pool.beat()
    assert total(engine) == 0


def test_a_half_pruned_tree_is_not_reopened(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    id = root(engine, pool, *(child() for _ in range(1500)))
    engine.cancel([id])
    clock.advance(2 * DAY)
    while total(engine) == 1501:
        clock.advance(31)
        pool.turn(workers=[])
    assert total(engine) == 501
    with pytest.raises(Refused, match="pruned"):
        engine.retry([id])
    engine.retry([id], all=True)
    assert (total(engine), engine.job(id).state) == (1, "pending")


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tree_that_ran_out_of_time_is_dead_and_everything_below_it_cancelled(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    id, kids = parent_of(engine, pool, 3, tree_timeout_s=60.0)
    running = claims(pool, 2)
    pool.succeed(running[kids[0]])
    assert pool.turn(want=0, held=[running[kids[1]]]).next_due_at == clock() + 60 * SECOND
    clock.advance(59.9)
    pool.beat(running[kids[1]])
    assert states(engine, id) == ["waiting"]
    clock.advance(0.1)
    reply = pool.turn(want=4)  # an idle turn finds it
    assert states(engine, id, *kids) == ["dead", "completed", "cancelled", "cancelled"]
    assert [held.id for held in reply.cancels] == [kids[1]]
    assert "60 s" in (engine.job(id).error or "")
    assert "out of time" in (engine.job(kids[2]).error or "")
    assert [event.kind for event in engine.events(id)] == ["expired"]
    assert pool.beat(running[kids[1]]).next_due_at is None
    assert check_queue(engine) == []


def test_a_time_out_covers_one_run_and_the_tree_s_time_covers_them_all(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    """A run may not outlast its tree, so the pool stops it then; the time-out of a parent says nothing of children."""
    (made,) = engine.enqueue([command(timeout_s=50.0, tree_timeout_s=60.0)])
    claim = pool.claim_one()
    assert claim.timeout_s == 50.0
    clock.advance(40)
    pool.report(claim, "taken_back")
    claim = pool.claim_one()
    assert claim.timeout_s == 20.0
    clock.advance(30)
    pool.beat(claim)
    assert states(engine, made.id) == ["processing"]  # its claim's time-out ends it
    pool.fail(claim, "timed out")
    pool.beat()
    assert states(engine, made.id) == ["dead"]
    plain, _ = parent_of(engine, pool, 1, timeout_s=1.0)
    clock.advance(5)
    pool.beat()
    assert states(engine, plain) == ["waiting"]


@pytest.mark.parametrize("state", ["pending", "scheduled", "failed", "blocked"])
def test_the_tree_s_time_runs_from_the_moment_it_may_start(
    engine: Engine, pool: HandPool, clock: FakeClock, state: str
) -> None:
    match state:
        case "pending" | "failed":
            (made,) = engine.enqueue([command(tree_timeout_s=60.0)])
            if state == "failed":
                pool.fail(pool.claim_one(), after_s=600.0)
            id, wait = made.id, 60.0
        case "scheduled":
            (made,) = engine.enqueue([command(tree_timeout_s=60.0, delay_s=100.0)])
            id, wait = made.id, 160.0
        case "blocked":
            root(engine, pool, child(delay_s=9999), after(tree_timeout_s=60.0))
            id, wait = engine.newest_id(), 60.0
    clock.advance(wait - 1)
    pool.beat()
    assert engine.job(id).state in (state, "pending")
    clock.advance(1)
    pool.beat()
    assert states(engine, id) == ["dead"]


def test_a_branch_may_have_less_time_than_its_tree(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.set_queue("default", max_depth=2)
    id = root(engine, pool, child(tree_timeout_s=10.0), child())
    pool.spawn(pool.claim_one(), child(), child())
    clock.advance(10)
    pool.beat()
    first, second = children(engine, id)
    assert (first.state, second.state, states(engine, id)) == ("dead", "pending", ["waiting"])
    assert [job.state for job in children(engine, first.id)] == ["cancelled", "cancelled"]


def test_a_retried_tree_has_its_time_again(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    id, (kid,) = parent_of(engine, pool, 1, tree_timeout_s=60.0)
    clock.advance(100)
    pool.beat()
    assert states(engine, id, kid) == ["dead", "cancelled"]
    engine.retry([id])
    assert pool.beat().next_due_at == clock() + 60 * SECOND
    pool.succeed(pool.claim_one())
    assert states(engine, id) == ["completed"]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_tree_time_out_that_is_none_is_refused(engine: Engine, timeout_s: float) -> None:
    with pytest.raises(InvalidInput):
        engine.enqueue([command(tree_timeout_s=timeout_s)])


# ── drain ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_drain_waits_for_parents_whose_children_run_elsewhere(engine: Engine) -> None:
    pool, elsewhere = HandPool(engine, queues=("default",)), HandPool(engine, queues=("other",))
    id = root(engine, pool, child(queue="other", max_attempts=2), joins=True)
    assert pool.turn(draining=True).drained  # nobody works on it
    claim = elsewhere.claim_one()
    assert not pool.turn(draining=True).drained
    elsewhere.succeed(claim)
    assert not pool.turn(draining=True).drained
    pool.succeed(pool.claim_one())
    assert pool.turn(draining=True).drained
    assert states(engine, id) == ["completed"]
