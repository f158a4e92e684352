"""Statements that repeat a rule for many jobs at once say what the rule says: on both databases, planned.

Decision 7 lists them. What the models (test_model, test_trees) compare after each random verb is part of that list.
"""

from __future__ import annotations

import json
import re
from random import Random

import pytest
from msgspec import structs

from covey.core import tree
from covey.core.machine import RULES, Signal, Transition, admit, cancel_below, decide
from covey.core.model import JobRow
from covey.engine.engine import Engine
from covey.store.statements import PARTS
from covey.testing import FakeClock
from tests.kit import HandPool, after, child, command, sibling
from tests.kit.hand_pool import report


@pytest.fixture(params=["memory", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(engine: Engine, *ids: int) -> list[JobRow]:
    found = engine.store.rows(list(ids))
    return [found[id] for id in ids]


def after_rule(row: JobRow, change: Transition) -> JobRow:
    """The row as the rule would have it."""
    return structs.replace(
        row,
        state=change.state,
        fence=row.fence + change.fence,
        attempts=0 if change.fresh_attempts else row.attempts + change.attempts,
        interruptions=row.interruptions + change.interruptions,
        phase=change.phase or row.phase,
        pool=row.pool if change.keeps_pool else None,
        run_at=row.run_at if change.run_at is None else change.run_at,
        blocked_by=change.blocked_by,
    )


def decided(engine: Engine, row: JobRow, signal: Signal) -> Transition:
    return decide(row, signal, engine.clock(), Random(0))


@pytest.mark.parametrize("queues", [("default",), ("default", "other")], ids=["one lane", "several lanes"])
def test_a_claim_is_that_of_the_rule(engine: Engine, pool: HandPool, queues: tuple[str, ...]) -> None:
    ids = [made.id for made in engine.enqueue([command(queue=queue) for queue in queues for _ in range(3)])]
    (back,) = pool.claim(1)
    pool.fail(back, after_s=0)
    before = rows(engine, *ids)
    assert len(pool.claim(9)) == len(ids)
    ready = [structs.replace(row, state="pending", pool=pool.id) for row in before]
    assert rows(engine, *ids) == [after_rule(row, decided(engine, row, Signal("claim"))) for row in ready]


def test_plain_successes_end_as_the_rule_says(engine: Engine, pool: HandPool) -> None:
    ids = [made.id for made in engine.enqueue([command() for _ in range(4)])]
    claims = pool.claim(9)
    before = rows(engine, *ids)
    pool.turn(*(report(claim, "success") for claim in claims))
    assert rows(engine, *ids) == [after_rule(row, decided(engine, row, Signal("success"))) for row in before]


def test_what_is_due_is_promoted_as_the_rule_says(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    ids = [made.id for made in engine.enqueue([command(delay_s=20), command(delay_s=3000), command()])]
    pool.fail(pool.claim_one(), after_s=20)
    before = rows(engine, *ids)
    clock.advance(25)
    pool.turn(want=0)
    due = [after_rule(row, decided(engine, row, Signal("due"))) for row in before]
    assert rows(engine, *ids) == [due[0], before[1], due[2]]


def test_what_is_below_a_cancelled_job_is_cancelled_as_the_rule_says(engine: Engine, pool: HandPool) -> None:
    """Running, failed, scheduled, blocked and pending ones; of the ended ones nothing is changed."""
    (root,) = engine.enqueue([command()])
    spawned = [child(str(n), max_attempts=2) for n in range(3)]
    pool.spawn(pool.claim_one(), *spawned, child("later", delay_s=999))
    runs, fails, ends = pool.claim(3)
    pool.fail(fails, after_s=999)
    pool.succeed(ends)
    ids = [job.id for job in engine.tree(root.id).children]
    before = rows(engine, *ids)
    engine.cancel([root.id])
    error = f"cancelled with job {root.id}"
    expected = []
    for row in before:
        if row.state == "completed":
            expected.append(row)
            continue
        change = decided(engine, row, Signal("cancel", error=error))
        assert structs.replace(change, keeps_pool=True) == cancel_below(error)
        expected.append(after_rule(row, change))
    assert rows(engine, *ids) == expected
    assert runs.id in ids


def test_a_serial_child_that_is_cancelled_with_its_parent_has_no_mark_left(engine: Engine, pool: HandPool) -> None:
    (root,) = engine.enqueue([command(child_mode="serial")])
    pool.spawn(pool.claim_one(), child("a"), child("b"))
    first, second = (job.id for job in engine.tree(root.id).children)
    assert [row.blocked_by for row in rows(engine, first, second)] == [0, 2]
    engine.cancel([root.id])
    assert [(row.state, row.blocked_by) for row in rows(engine, first, second)] == [("cancelled", 0)] * 2


def test_a_copy_is_a_new_job(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command(delay_s=5, priority=3)])
    (job,) = (each.id for each in engine.cancel([1]))
    (copied,) = engine.retry([job], again=True)
    (row,) = rows(engine, copied.new_id or 0)
    first = admit(None, engine.clock())
    assert (row.state, row.run_at, row.blocked_by, row.attempts) == (first.state, first.run_at, first.blocked_by, 0)


def test_a_tree_that_is_opened_again_has_the_time_of_a_new_one(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command(tree_timeout_s=12.5)])
    engine.cancel([made.id])
    clock.advance(7)
    engine.retry([made.id])
    stored = engine.store.raw("select tree_deadline_at from {jobs}")
    assert stored == [(tree.deadline(12.5, None, clock()),)]


def test_lanes_that_are_set_together_are_those_that_new_jobs_get(engine: Engine, pool: HandPool) -> None:
    """Roots and children, in the serial queue and beside it."""
    for queue in ("line", "beside"):
        engine.set_queue(queue, serial=True)
    engine.enqueue([command(queue="line"), command(queue="beside"), command(queue="free"), command(queue="line")])
    for claim in pool.claim(3):
        pool.spawn(claim, *(child(queue=queue) for queue in ("line", "beside", "free")), after(queue="line"))
    for claim in pool.claim(9):
        if claim.parent_id is not None:
            pool.spawn(claim, sibling(queue="line"))
    made = engine.store.raw("select id, lane from {jobs} order by id")
    assert {lane for _, lane in made} > {None, 0}
    ids = json.dumps([id for id, _ in made])
    with engine.store.transaction():
        engine.store.raw("update {jobs} set lane = 77")
        engine.store.ask("relane", ids=ids)
    assert engine.store.raw("select id, lane from {jobs} order by id") == made


@pytest.mark.parametrize(("part", "signal"), [("waits_for_its_hour", "due"), ("has_deadline", "expired")])
def test_statements_look_for_the_states_in_which_the_rules_know_the_signal(part: str, signal: str) -> None:
    assert set(re.findall(r"'(\w+)'", PARTS[part])) == {state for state, name in RULES if name == signal}
