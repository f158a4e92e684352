"""Spawning: children exist if, and only if, the success of the run that spawned them is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from covey.core.machine import SECOND
from covey.core.model import Spawn
from covey.core.turn import Held
from covey.core.view import Filter, rfc3339
from covey.engine.engine import Engine
from covey.errors import CoveyError
from covey.testing import FakeClock
from tests.kit import HandPool, after, check_queue, child, command, python_task, sibling
from tests.kit.faults import failpoint
from tests.kit.hand_pool import report

from .family import children, claims, parent_of, root, states


def count(engine: Engine) -> int:
    return sum(engine.status().counts.values())


def test_children_and_the_waiting_parent_are_written_together(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child("a", key="a"), child("b", timeout_s=5.0, cwd="/tmp"), report={"result": "7"})
    parent = engine.job(id)
    assert (parent.state, parent.pool, parent.phase, parent.result, parent.finished_at) == (
        "waiting",
        None,
        "run",
        7,
        None,
    )
    assert (parent.children.total, parent.children.unfinished, parent.children.failed) == (2, 2, 0)
    a, b = children(engine, id)
    assert [(job.parent_id, job.root_id, job.depth, job.child_no, job.state) for job in (a, b)] == [
        (id, id, 1, 0, "pending"),
        (id, id, 1, 1, "pending"),
    ]
    assert (a.key, a.command, b.command, b.timeout, b.cwd) == ("a", "a", "b", 5.0, "/tmp")
    assert check_queue(engine) == []


def test_a_run_that_did_not_succeed_has_spawned_nothing_whenever_it_was_lost(
    engine: Engine, clock: FakeClock, proof: Callable[[int, int], int]
) -> None:
    """Whatever it had recorded, for every k of n; the run that succeeds spawns exactly n, once."""
    n = proof(5, 20)
    (made,) = engine.enqueue([command(max_attempts=100)])
    for k in range(n):
        pool = HandPool(engine)
        recorded = [child(key=f"k{i}") for i in range(k)]
        match k % 4:
            case 0:
                pool.report(pool.claim_one(), "worker_lost", error="worker lost", spawned=recorded)
            case 1:
                pool.fail(pool.claim_one(), spawned=recorded)
            case 2:
                pool.claim_one()
                pool.lose()
            case 3:
                claim = pool.claim_one()
                with failpoint("turn.before_commit", "raise"), pytest.raises((OSError, CoveyError)):
                    pool.spawn(claim, *recorded)
                pool.report(claim, "stopped")
        assert count(engine) == 1
        clock.advance(400)
    pool = HandPool(engine)
    claim = pool.claim_one()
    for _ in range(3):  # an answer that was lost is asked for again
        assert pool.spawn(claim, *(child(key=f"k{i}") for i in range(n))).refused == []
    assert [job.key for job in children(engine, made.id)] == [f"k{i}" for i in range(n)]


def test_a_late_report_spawns_nothing(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    pool.lose()
    other = HandPool(engine)
    again = other.claim_one()
    late = other.turn(report(Held(claim.id, claim.fence), "success", spawned=[child()]))
    assert late.refused == [Held(claim.id, claim.fence)]
    assert count(engine) == 1
    other.succeed(again)
    assert states(engine, claim.id) == ["completed"]


def test_a_cancelled_run_spawns_nothing(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    engine.cancel([claim.id])
    pool.spawn(claim, child())
    assert count(engine) == 1
    assert states(engine, claim.id) == ["cancelled"]


@pytest.mark.parametrize("spawned", [[], None])
def test_an_empty_fan_out_completes_at_once(engine: Engine, pool: HandPool, spawned: list[Spawn] | None) -> None:
    (made,) = engine.enqueue([python_task("t", joins=True)])
    pool.succeed(pool.claim_one(), spawned=spawned, result="1")
    job = engine.job(made.id)
    assert (job.state, job.phase, job.result, job.children.total, job.children.progress) == (
        "completed",
        "run",
        1,
        0,
        None,
    )


def test_children_inherit_queue_and_priority_unless_told(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(), child(queue="other", priority=9), child(priority=0), queue="q", priority=4)
    assert [(job.queue, job.priority) for job in children(engine, id)] == [("q", 4), ("other", 9), ("q", 0)]
    assert {queue.name for queue in engine.queues()} == {"q", "other"}


def test_a_child_may_be_scheduled(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    id = root(engine, pool, child(delay_s=30), child(run_at=clock() + 10 * SECOND))
    assert [(job.state, job.run_at) for job in children(engine, id)] == [
        ("scheduled", rfc3339(clock() + 30 * SECOND)),
        ("scheduled", rfc3339(clock() + 10 * SECOND)),
    ]
    assert pool.claim(4) == []


def test_a_parent_with_only_future_children_costs_an_idle_pool_reads_only(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, child(delay_s=3600))
    before = engine.pools()
    for _ in range(10):
        assert pool.claim(4) == []
    assert engine.pools() == before


def test_older_trees_finish_first(engine: Engine, pool: HandPool) -> None:
    """Within one priority a child stands where its root stood; a more urgent job still comes first."""
    first, second = engine.enqueue([command("first"), command("second")])
    pool.spawn(pool.claim_one(), child("of first"), child("of first"))
    (urgent,) = engine.enqueue([command("urgent", priority=1)])
    order = [claim.id for claim in pool.claim(4)]
    kids = [job.id for job in children(engine, first.id)]
    assert order == [urgent.id, *kids, second.id]


def test_a_claim_says_where_the_job_stands_in_its_tree(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(priority=3))
    claim = pool.claim_one()
    assert (claim.parent_id, claim.root_id, claim.depth, claim.max_depth, claim.phase) == (id, id, 1, 1, "run")
    assert (claim.priority, claim.joins, claim.child_mode, claim.children) == (3, 0, None, None)
    (other,) = engine.enqueue([python_task("t", joins=True, child_mode="serial")])
    claim = pool.claim_one()
    assert (claim.parent_id, claim.root_id, claim.depth, claim.joins) == (None, other.id, 0, 1)
    assert claim.child_mode == "serial"


# ── refused ─────────────────────────────────────────────────────────────────────────────────────────────────────────

REFUSED: dict[str, tuple[list[Spawn], dict[str, Any], str]] = {
    "a47 a key with other arguments": ([child("a", key="k"), child("b", key="k")], {}, "'k'"),
    "a sibling of a root": ([sibling()], {}, "root"),
    "a mode that contradicts the job's": ([child()], {"child_mode": "concurrent"}, "serial"),
    "a key of digits": ([child(key="12")], {}, "digits"),
    "a queue that is no name": ([child(queue="no good")], {}, "queue"),
    "arguments that are no JSON": ([Spawn("child", command().__class__(task="t", args="{"))], {}, "JSON"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_spawn_that_is_refused_buries_its_job_and_writes_nothing(engine: Engine, pool: HandPool, what: str) -> None:
    spawned, fields, word = REFUSED[what]
    (made,) = engine.enqueue([command(child_mode="serial")])
    claim = pool.claim_one()
    reply = pool.spawn(claim, child("fine"), *spawned, result="1", **fields)
    job = engine.job(made.id)
    assert (job.state, reply.refused, job.result) == ("dead", [], None)
    assert word in (job.error or "")
    assert "spawned" in (job.error or "")
    assert count(engine) == 1
    assert [(a.outcome, a.error) for a in engine.history(made.id)] == [("abort", job.error)]


def test_the_same_key_with_the_same_call_is_the_same_child(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child("a", key="k"), child("b"), child("a", key="k"))
    assert [job.command for job in children(engine, id)] == ["a", "b"]
    assert engine.job(id).children.total == 2


def test_two_parents_may_use_the_same_child_key_and_a_top_level_job_too(engine: Engine, pool: HandPool) -> None:
    (top,) = engine.enqueue([command("top", key="k", delay_s=100)])
    first = root(engine, pool, child("a", key="k", delay_s=100))
    second = root(engine, pool, child("b", key="k", delay_s=100))
    assert [children(engine, id)[0].key for id in (first, second)] == ["k", "k"]
    assert engine.job("k").id == top.id


def test_a_child_whose_unique_key_is_taken_is_no_new_child(engine: Engine, pool: HandPool) -> None:
    (taken,) = engine.enqueue([command(unique_key="u", delay_s=100)])
    id = root(
        engine, pool, child("a", unique_key="u"), child("b"), child("c", unique_key="v"), child("d", unique_key="v")
    )
    assert [job.command for job in children(engine, id)] == ["b", "c"]
    assert states(engine, taken.id, id) == ["scheduled", "waiting"]


def test_a_fan_out_that_is_all_somebody_else_s_completes_or_joins_at_once(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command(unique_key="u", delay_s=100)])
    plain = root(engine, pool, child(unique_key="u"))
    joins = root(engine, pool, child(unique_key="u"), joins=True)
    assert states(engine, plain, joins) == ["completed", "pending"]
    assert engine.job(joins).phase == "join"
    claim = pool.claim_one()
    assert (claim.id, claim.phase, claim.children) == (joins, "join", "[]")


def test_a_unique_key_is_free_once_claimed_so_a_lost_twin_comes_back_beside_a_new_one(engine: Engine) -> None:
    pool = HandPool(engine)
    id = root(engine, pool, child(unique_key="u"))
    running = pool.claim_one()
    other = root(engine, pool, child(unique_key="u", delay_s=5))
    pool.lose()
    first, second = children(engine, id)[0], children(engine, other)[0]
    assert (first.id, first.state, second.state) == (running.id, "pending", "scheduled")


# ── siblings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sibling_is_one_more_child_of_the_same_parent_which_cannot_end_in_between(
    engine: Engine, pool: HandPool
) -> None:
    id, (only,) = parent_of(engine, pool, 1)
    for n in range(1, 4):
        pool.spawn(pool.claim_one(), sibling(f"more {n}"))
        parent = engine.job(id)
        assert (parent.state, parent.children.total, parent.children.unfinished) == ("waiting", n + 1, 1)
    pool.succeed(pool.claim_one())
    assert states(engine, id, only) == ["completed", "completed"]
    assert [(job.child_no, job.parent_id, job.depth) for job in children(engine, id)] == [(n, id, 1) for n in range(4)]


def test_a_sibling_s_key_is_compared_with_those_of_the_parent(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child("a", key="k"), child("b"), child("c"))
    _, b, c = pool.claim(3)
    pool.spawn(b, sibling("a", key="k"))
    pool.spawn(c, sibling("other", key="k"))
    assert engine.job(id).children.total == 3
    assert states(engine, b.id, c.id) == ["completed", "dead"]


def test_siblings_from_two_reports_of_one_turn_stand_in_one_line(engine: Engine, pool: HandPool) -> None:
    id, _kids = parent_of(engine, pool, 2)
    a, b = claims(pool, 2).values()
    pool.turn(report(a, "success", spawned=[sibling("x")]), report(b, "success", spawned=[sibling("y")]))
    assert [job.child_no for job in children(engine, id)] == [0, 1, 2, 3]
    assert engine.job(id).children.unfinished == 2


# ── depth and size ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_grandchildren_are_refused_unless_the_root_s_queue_allows_them(engine: Engine, pool: HandPool) -> None:
    shallow = root(engine, pool, child(max_attempts=5))
    claim = pool.claim_one()
    pool.spawn(claim, child())
    assert "depth 1" in (engine.job(claim.id).error or "")
    assert states(engine, shallow, claim.id) == ["dead", "dead"]
    engine.set_queue("deep", max_depth=3)
    id = root(engine, pool, child(queue="default"), queue="deep")
    for depth in (1, 2, 3):
        claim = pool.claim_one()
        assert (claim.depth, claim.max_depth, claim.root_id) == (depth, 3, id)
        pool.spawn(claim, child())
    assert states(engine, id, claim.id) == ["dead", "dead"]


def test_depth_is_the_root_queue_s_at_the_time_of_enqueuing(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    engine.set_queue("default", max_depth=0)
    pool.spawn(pool.claim_one(), child())
    assert states(engine, made.id) == ["waiting"]
    pool.succeed(pool.claim_one())
    (made,) = engine.enqueue([command()])
    pool.spawn(pool.claim_one(), child())
    assert states(engine, made.id) == ["dead"]


def test_one_report_may_spawn_a_hundred_thousand(
    engine: Engine, pool: HandPool, proof: Callable[[int, int], int]
) -> None:
    n = proof(5_000, 100_000)
    (made,) = engine.enqueue([command()])
    pool.spawn(pool.claim_one(), *(child(key=f"k{i}") for i in range(n)))
    assert engine.job(made.id).children.total == n
    assert engine.status().counts["pending"] == n
    first = engine.tree(made.id, limit=10)
    assert [job.key for job in first.children] == [f"k{i}" for i in range(10)]


# ── the view ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tree_is_shown_page_by_page_in_the_order_of_spawning(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 7)
    seen, after = [], None
    while True:
        page = engine.tree(id, limit=3, after=after)
        assert page.job.id == id
        seen += [job.id for job in page.children]
        if (after := page.next) is None:
            break
    assert seen == kids
    assert engine.tree(kids[0]).children == []
    assert len(engine.jobs(Filter()).jobs) == 8


@pytest.mark.parametrize("relation", [child, sibling, after])
def test_a_spawned_job_that_could_not_be_enqueued_is_refused_whoever_it_is_to_be(
    engine: Engine, pool: HandPool, relation: Any
) -> None:
    engine.set_queue("default", max_depth=5)
    one = root(engine, pool, child())
    (below,) = children(engine, one)
    pool.spawn(pool.claim_one(), relation("x", queue="no queue"))
    dead = engine.job(below.id)
    assert dead.state == "dead"
    assert "what it spawned was refused: queue 'no queue'" in (dead.error or "")
