"""A pool that is there for one tree: Capacity.root."""

from __future__ import annotations

from covey.core.turn import Capacity
from covey.engine.engine import Engine
from tests.kit import HandPool, child, command


def want(root: int, *queues: str, places: int = 5) -> Capacity:
    return Capacity(queues or None, {"command": places}, places, root=root)


def claimed(pool: HandPool, wanted: Capacity, **more: object) -> list[int]:
    return [claim.id for claim in pool.turn(wants=[wanted], **more).claims]


def test_only_jobs_of_that_tree_are_claimed_whatever_waits_before_them(engine: Engine, pool: HandPool) -> None:
    ids = [made.id for made in engine.enqueue([command(priority=9), command(), command(priority=9)])]
    assert claimed(pool, want(ids[1])) == [ids[1]]
    assert claimed(pool, want(ids[1])) == []
    assert [engine.job(id).state for id in ids] == ["pending", "processing", "pending"]


def test_what_the_tree_has_spawned_is_part_of_it(engine: Engine, pool: HandPool) -> None:
    (root, _) = (made.id for made in engine.enqueue([command(), command()]))
    (claim,) = pool.turn(wants=[want(root)]).claims
    pool.spawn(claim, child("a"), child("b"), child("c"))
    below = [each.id for each in engine.tree(root).children]
    assert claimed(pool, want(root, places=2)) == below[:2]
    assert claimed(pool, want(root)) == below[2:]


def test_a_tree_has_no_more_rights_than_its_queue(engine: Engine, pool: HandPool) -> None:
    (root, other) = (made.id for made in engine.enqueue([command(queue="q"), command(queue="q")]))
    assert claimed(pool, want(root, "another")) == []
    engine.pause("q")
    assert claimed(pool, want(root, "q")) == []
    engine.resume("q")
    engine.set_queue("q", concurrency=1)
    assert claimed(pool, want(other, "q")) == [other]
    assert claimed(pool, want(root, "q")) == []


def test_a_serial_queue_s_lane_holds_for_a_pool_of_one_tree_too(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("s", serial=True)
    (first, second) = (made.id for made in engine.enqueue([command(queue="s"), command(queue="s")]))
    assert claimed(pool, want(second)) == [second]
    assert claimed(pool, want(first)) == []


def test_such_a_pool_has_nothing_left_to_do_once_its_tree_has_ended(engine: Engine, pool: HandPool) -> None:
    (root, _) = (made.id for made in engine.enqueue([command(), command()]))
    assert not pool.turn(wants=[want(root, places=0)], draining=True).drained
    (claim,) = pool.turn(wants=[want(root)]).claims
    pool.succeed(claim)
    assert pool.turn(wants=[want(root)], draining=True).drained


def test_while_its_queue_is_paused_there_is_nothing_to_do_for_it(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command(queue="q")])
    engine.pause("q")
    assert pool.turn(wants=[want(made.id)], draining=True).drained
