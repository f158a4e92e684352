"""The end of a child: counted once, and the last one moves its parent on, upward through every ancestor."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from covey.core.model import Child, Claim
from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, check_queue, child, command, sibling
from tests.kit.hand_pool import report

from .family import children, claims, parent_of, root, states


def test_one_place_is_enough_for_a_parent_and_its_children(engine: Engine) -> None:
    pool = HandPool(engine, count=1)
    id, kids = parent_of(engine, pool, 3)
    for n, kid in enumerate(kids):
        assert states(engine, id) == ["waiting"]
        assert engine.job(id).children.progress == n / 3
        claim = pool.claim_one()
        assert claim.id == kid
        pool.succeed(claim)
    job = engine.job(id)
    assert (job.state, job.children.progress, job.children.ended, job.error) == ("completed", 1.0, 3, None)


def test_the_last_children_of_one_turn_settle_their_parent_once(engine: Engine, pool: HandPool) -> None:
    id, _kids = parent_of(engine, pool, 50, joins=True)
    pool.turn(*(report(claim, "success") for claim in pool.claim(50)))
    job = engine.job(id)
    assert (job.state, job.phase, job.children.unfinished, job.fence) == ("pending", "join", 0, 1)
    assert [claim.id for claim in pool.claim(9)] == [id]


def test_a_dead_child_kills_its_parent_once_all_have_ended_and_is_named(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 3)
    running = claims(pool, 3)
    pool.fail(running[kids[0]], "no such file")
    pool.succeed(running[kids[1]])
    assert states(engine, id) == ["waiting"]
    pool.succeed(running[kids[2]])
    job = engine.job(id)
    assert (job.state, job.children.failed) == ("dead", 1)
    assert f"job {kids[0]} dead: no such file" in (job.error or "")
    assert "1 of 3" in (job.error or "")
    assert check_queue(engine) == []


@pytest.mark.parametrize("kind", ["dead", "abort", "cancelled", "lost", "interrupted"])
@pytest.mark.parametrize("collect", [False, True])
def test_however_a_child_fails_the_parent_ends_once_and_a_collecting_join_sees_it(
    engine: Engine, kind: str, collect: bool
) -> None:
    pool = HandPool(engine)
    spec: dict[str, Any] = {"joins": True, "on_error": "collect"} if collect else {}
    id, (good, bad) = parent_of(engine, pool, 2, **spec)
    running = claims(pool, 2)
    pool.succeed(running[good], result='{"n":1}')
    match kind:
        case "dead":
            pool.fail(running[bad], "boom")
        case "abort":
            pool.report(running[bad], "abort", error="never")
        case "cancelled":
            engine.cancel([bad])
        case "lost":
            pool.report(running[bad], "worker_lost", error="worker lost")
        case "interrupted":
            pool.lose()
            while engine.job(bad).state != "dead":
                pool = HandPool(engine)
                pool.claim_one()
                pool.lose()
            pool = HandPool(engine)
    state = "cancelled" if kind == "cancelled" else "dead"
    assert states(engine, bad) == [state]
    if not collect:
        assert states(engine, id) == ["dead"]
        assert f"job {bad} {state}" in (engine.job(id).error or "")
        return
    claim = pool.claim_one()
    assert (claim.id, claim.phase) == (id, "join")
    outcomes = [Child(**each) for each in json.loads(claim.children or "")]
    assert [(o.id, o.state, o.result) for o in outcomes] == [(good, "completed", {"n": 1}), (bad, state, None)]
    assert outcomes[1].error or kind == "cancelled"
    pool.succeed(claim, result="5")
    assert (engine.job(id).state, engine.job(id).result) == ("completed", 5)


def test_a_child_in_back_off_keeps_its_parent_waiting(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    id = root(engine, pool, child(max_attempts=2))
    claim = pool.claim_one()
    pool.fail(claim, "first")
    assert states(engine, id, claim.id) == ["waiting", "failed"]
    assert engine.job(id).pool is None
    clock.advance(10)
    pool.fail(pool.claim_one(), "second")
    assert states(engine, id, claim.id) == ["dead", "dead"]
    assert f"job {claim.id} dead: second" in (engine.job(id).error or "")


def test_on_error_cancel_cancels_the_siblings_at_once(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 4, on_error="cancel")
    running = claims(pool, 2)
    reply = pool.fail(running[kids[0]])
    assert states(engine, id, *kids) == ["dead", "dead", "cancelled", "cancelled", "cancelled"]
    assert [held.id for held in reply.cancels] == [kids[1]]
    assert engine.job(kids[1]).pool == pool.id  # until its processes are gone
    assert "did not complete" in (engine.job(kids[2]).error or "")
    pool.report(running[kids[1]], "gone")
    assert (engine.job(kids[1]).pool, engine.job(kids[1]).error) == (None, engine.job(kids[2]).error)
    assert engine.job(id).children.failed == 4


def test_the_join_is_a_second_phase_with_attempts_of_its_own(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(max_attempts=2, joins=True)])
    pool.fail(pool.claim_one())
    clock.advance(10)
    pool.spawn(pool.claim_one(), child("a", key="x"), child("b"), result='"run"')
    a, b = pool.claim(2)
    pool.turn(report(b, "success", result="2"), report(a, "success", result="[1]"))
    for attempt in (1, 2):
        claim = pool.claim_one()
        assert (claim.id, claim.phase, claim.attempt, claim.max_attempts) == (made.id, "join", attempt, 2)
        outcomes = json.loads(claim.children or "")
        assert [(o["id"], o["key"], o["task"], o["state"], o["result"]) for o in outcomes] == [
            (a.id, "x", "shell", "completed", [1]),
            (b.id, None, "shell", "completed", 2),
        ]
        if attempt == 1:
            pool.fail(claim, "join failed")
            assert states(engine, made.id) == ["failed"]
            clock.advance(10)
    pool.succeed(claim, result='"joined"')
    job = engine.job(made.id)
    assert (job.state, job.phase, job.result) == ("completed", "join", "joined")


def test_a_join_may_not_spawn(engine: Engine, pool: HandPool) -> None:
    id, _ = parent_of(engine, pool, 1, joins=True)
    pool.succeed(pool.claim_one())
    pool.spawn(pool.claim_one(), child())
    job = engine.job(id)
    assert (job.state, job.children.total) == ("dead", 1)
    assert "join" in (job.error or "")


def test_without_collect_a_failed_child_means_no_join(engine: Engine, pool: HandPool) -> None:
    id, (_kid,) = parent_of(engine, pool, 1, joins=True)
    pool.fail(pool.claim_one())
    assert (engine.job(id).state, engine.job(id).phase) == ("dead", "run")
    assert pool.claim(1) == []


def test_the_run_itself_may_say_that_it_has_a_join_and_what_errors_mean(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(max_attempts=1), report={"joins": True, "on_error": "collect"})
    pool.fail(pool.claim_one())
    assert (engine.job(id).state, engine.job(id).phase) == ("pending", "join")


def test_results_too_large_together_are_left_out_and_said_to_be(
    engine: Engine, pool: HandPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.store.families.MAX_OUTCOMES", 10)
    _id, _kids = parent_of(engine, pool, 3, joins=True)
    a, b, c = claims(pool, 3).values()
    pool.turn(
        report(a, "success", result='"12345"'), report(b, "success", result='"67890"'), report(c, "success", result="1")
    )
    outcomes = json.loads(pool.claim_one().children or "")
    assert [(o["result"], o["left_out"]) for o in outcomes] == [("12345", False), (None, True), (1, False)]


# ── upward ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def deep(engine: Engine, pool: HandPool, depth: int, **spec: Any) -> list[int]:
    """A chain of only children; the last one is pending."""
    engine.set_queue("default", max_depth=depth)
    ids = [root(engine, pool, child(max_attempts=1), **spec)]
    for _ in range(depth - 1):
        claim = pool.claim_one()
        ids.append(claim.id)
        pool.spawn(claim, child(max_attempts=1))
    return [*ids, children(engine, ids[-1])[0].id]


def test_the_last_end_goes_up_through_every_ancestor(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool, 5)
    assert states(engine, *ids) == ["waiting"] * 5 + ["pending"]
    pool.succeed(pool.claim_one())
    assert states(engine, *ids) == ["completed"] * 6
    assert check_queue(engine) == []


def test_a_cascade_that_cancels_the_last_child_ends_every_ancestor(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool, 4)
    engine.cancel([ids[-1]])
    assert states(engine, *ids) == ["dead"] * 4 + ["cancelled"]
    for above, below in pairwise(ids):
        assert f"job {below}" in (engine.job(above).error or "")


def test_an_ancestor_s_join_runs_when_the_tree_below_it_is_done(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool, 2, joins=True)
    pool.succeed(pool.claim_one())
    assert states(engine, *ids) == ["pending", "completed", "completed"]
    claim = pool.claim_one()
    assert (claim.id, claim.phase) == (ids[0], "join")


def test_the_last_child_may_end_in_the_turn_in_which_it_spawned_a_sibling(engine: Engine, pool: HandPool) -> None:
    id, _kids = parent_of(engine, pool, 2)
    a, b = claims(pool, 2).values()
    pool.turn(report(a, "success"), report(b, "success", spawned=[sibling()]))
    assert states(engine, id) == ["waiting"]
    pool.succeed(pool.claim_one())
    assert states(engine, id) == ["completed"]


# ── info ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_numbers_in_the_children_s_info_add_up_and_text_does_no_harm(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(), child(), child(), report={"info": '{"rows": 1, "name": "x"}'})
    a, b, c = pool.claim(3)
    pool.turn(
        report(a, "success", info='{"rows": 2, "bytes": 0.5, "name": 7}'),
        report(b, "success", info='{"rows": "many", "bytes": 1, "flag": true}'),
        report(c, "success", info='"just text"'),
    )
    assert engine.job(id).info == {"rows": 3, "bytes": 1.5, "name": "x"}


def test_info_adds_up_through_every_level_and_once(engine: Engine, pool: HandPool) -> None:
    ids = deep(engine, pool, 2)
    pool.fail(pool.claim_one(), info='{"n": 3}')
    assert [engine.job(id).info for id in ids] == [{"n": 3}] * 3
    engine.retry([ids[0]])
    pool.succeed(pool.claim_one(), info='{"n": 4}')
    assert [engine.job(id).info for id in ids] == [{"n": 4}] * 3


@pytest.mark.parametrize("info", ['{"n": 1e308}', '{"n": 99999999999999999999999999}', '{"n": null}', "[1]", "3"])
def test_no_info_keeps_a_turn_from_being_stored(engine: Engine, pool: HandPool, info: str) -> None:
    id, _ = parent_of(engine, pool, 3)
    pool.turn(*(report(claim, "success", info=info) for claim in pool.claim(3)))
    assert states(engine, id) == ["completed"]


# ── the sweep ───────────────────────────────────────────────────────────────────────────────────────────────────────


def healed(engine: Engine) -> list[int | None]:
    return [event.job_id for event in engine.events() if event.kind == "healed"]


@pytest.mark.parametrize(
    "damage",
    [
        "update {jobs} set state = 'waiting'",  # no children at all
        "update {jobs} set state = 'completed', finished_at = 1, pool = null, attempts = 1 where parent_id is not null",
        "delete from {jobs} where parent_id is not null",
    ],
)
def test_a_parent_that_waits_for_nobody_is_settled_by_the_sweep_with_an_event(
    engine: Engine, pool: HandPool, clock: FakeClock, damage: str
) -> None:
    if "parent_id" in damage:
        id, _ = parent_of(engine, pool, 2)
    else:
        (made,) = engine.enqueue([command()])
        id = made.id
    pool.beat()
    with engine.store.transaction():
        engine.store.raw(damage)
    assert states(engine, id) == ["waiting"]
    for _ in range(2):
        clock.advance(31)
        pool.beat()
    assert states(engine, id) == ["completed"]
    assert healed(engine) == [id]


def test_the_sweep_leaves_a_parent_alone_whose_children_are_at_work(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    id, _kids = parent_of(engine, pool, 2)
    claim = pool.claim_one()
    for _ in range(3):
        clock.advance(31)
        pool.beat(claim)
    assert states(engine, id) == ["waiting"]
    assert healed(engine) == []
    assert len(engine.jobs(Filter()).jobs) == 3


# ── at once ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_two_children_may_end_at_the_same_moment_on_two_pools(
    engine: Engine, connect: Callable[[], Engine], proof: Callable[[int, int], int]
) -> None:
    """Each pool has its own connection and thread; whoever comes second settles the parent, and only once."""
    rounds = proof(50, 1000)
    pools = [HandPool(connect()) for _ in range(2)]
    ready = threading.Barrier(2)
    problems: list[BaseException] = []

    def work(pool: HandPool, claims: list[Claim]) -> None:
        try:
            for claim in claims:
                ready.wait(30)
                pool.succeed(claim, result="1")
        except BaseException as problem:
            problems.append(problem)

    parents = [made.id for made in engine.enqueue([command(joins=n % 2 == 0) for n in range(rounds)])]
    for claim in pools[0].claim(rounds):
        pools[0].spawn(claim, child(), child())
    mine: list[list[Claim]] = [[], []]
    for claim in pools[0].claim(rounds * 2):
        kids = mine[claim.id % 2]
        kids.append(claim)
    with engine.store.transaction():  # every second child is the other pool's
        engine.store.raw("update {jobs} set pool = :pool where parent_id is not null and id % 2 = 1", pool=pools[1].id)
    mine[0].sort(key=lambda claim: claim.parent_id or 0)
    mine[1].sort(key=lambda claim: claim.parent_id or 0)
    threads = [threading.Thread(target=work, args=pair) for pair in zip(pools, mine, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert states(engine, *parents) == ["pending", "completed"] * (rounds // 2)
    assert check_queue(engine) == []
    assert healed(engine) == []
