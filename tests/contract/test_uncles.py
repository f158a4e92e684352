"""Uncles: top-level jobs that wait for a root to end."""

from __future__ import annotations

import pytest

from covey.core.view import Edit
from covey.engine.engine import Engine
from covey.errors import Refused
from covey.testing import FakeClock
from tests.kit import HandPool, after, child, command
from tests.kit.hand_pool import report

from .family import children, claims, root, states


def newest(engine: Engine) -> int:
    return engine.newest_id()


def with_uncle(engine: Engine, pool: HandPool, **fields: object) -> tuple[int, int, int]:
    """(root, its one child, its uncle)"""
    id = root(engine, pool, child("child", max_attempts=1), after("uncle", **fields))
    return id, children(engine, id)[0].id, newest(engine)


def test_an_uncle_is_a_top_level_job_blocked_until_the_root_has_ended(engine: Engine, pool: HandPool) -> None:
    id, _, uncle = with_uncle(engine, pool)
    job = engine.job(uncle)
    assert (job.state, job.parent_id, job.root_id, job.depth) == ("blocked", None, uncle, 0)
    assert str(id) in engine.why(uncle).reason
    assert engine.job(id).children.total == 1
    pool.succeed(pool.claim_one())
    assert states(engine, id, uncle) == ["completed", "pending"]
    assert pool.claim_one().id == uncle


def test_an_uncle_that_was_cancelled_keeps_no_other_from_starting(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, child("child"), after("a"), after("b"), after("c"))
    first, second, third = (newest(engine) - 2, newest(engine) - 1, newest(engine))
    engine.cancel([first])
    pool.succeed(pool.claim_one())
    assert states(engine, first, second, third) == ["cancelled", "pending", "pending"]


def test_an_uncle_of_a_child_waits_for_the_root(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(), child())
    a, b = pool.claim(2)
    pool.spawn(a, after("uncle"))
    assert states(engine, a.id, newest(engine)) == ["completed", "blocked"]
    pool.succeed(b)
    assert states(engine, id, newest(engine)) == ["completed", "pending"]


def test_an_uncle_of_a_run_without_children_is_ready_at_once(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, after("uncle"))
    assert states(engine, id, newest(engine)) == ["completed", "pending"]


def test_an_uncle_inherits_queue_and_priority_unless_told(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, after("a"), after("b", queue="other", priority=1), queue="q", priority=7)
    b, a = (engine.job(newest(engine) - n) for n in (0, 1))
    assert [(job.queue, job.priority) for job in (a, b)] == [("q", 7), ("other", 1)]


def test_an_uncle_stands_where_its_root_stood(engine: Engine, pool: HandPool) -> None:
    first, second = engine.enqueue([command("first"), command("second")])
    pool.spawn(pool.claim_one(), after("uncle"))
    assert [claim.id for claim in pool.claim(2)] == [newest(engine), second.id]
    assert states(engine, first.id) == ["completed"]


def test_uncles_with_one_unique_key_merge_while_unstarted_and_wait_for_every_root(
    engine: Engine, pool: HandPool
) -> None:
    first, _, uncle = with_uncle(engine, pool, unique_key="analyze")
    second, _, _ = with_uncle(engine, pool, unique_key="analyze")
    assert [job.id for job in (engine.job(uncle),)] == [uncle]
    assert sum(engine.status().counts.values()) == 5
    a, b = pool.claim(2)
    pool.succeed(b)
    assert states(engine, second, uncle) == ["completed", "blocked"]
    pool.succeed(a)
    assert states(engine, first, uncle) == ["completed", "pending"]


def test_a_merged_uncle_stands_where_the_oldest_of_its_roots_stood(engine: Engine, pool: HandPool) -> None:
    first, second, third = engine.enqueue([command("first"), command("second"), command("third")])
    a, b = pool.claim(2)
    pool.spawn(b, after("uncle", unique_key="k", priority=0))
    assert [event.kind for event in engine.events(second.id)] == []
    uncle = newest(engine)
    pool.spawn(a, after("uncle", unique_key="k"))
    assert engine.store.row(uncle).seq == first.id  # type: ignore[union-attr]
    assert [claim.id for claim in pool.claim(2)] == [uncle, third.id]


def test_merging_into_one_that_was_ready_blocks_it_again(engine: Engine, pool: HandPool) -> None:
    """It would otherwise run before the inputs of the second round."""
    first, _, uncle = with_uncle(engine, pool, unique_key="analyze")
    pool.succeed(pool.claim_one())
    assert states(engine, first, uncle) == ["completed", "pending"]
    engine.edit(uncle, Edit(priority=-1))
    (second,) = engine.enqueue([command()])
    pool.spawn(pool.claim_one(), child("child"), after("uncle", unique_key="analyze"))
    assert states(engine, uncle) == ["blocked"]
    pool.succeed(pool.claim_one())
    assert states(engine, second.id, uncle) == ["completed", "pending"]


def test_a_started_uncle_gets_a_successor(engine: Engine, pool: HandPool) -> None:
    _, _, uncle = with_uncle(engine, pool, unique_key="analyze")
    pool.succeed(pool.claim_one())
    running = pool.claim_one()
    assert running.id == uncle
    with_uncle(engine, pool, unique_key="analyze")
    successor = newest(engine)
    assert successor != uncle
    assert states(engine, uncle, successor) == ["processing", "blocked"]


def test_two_uncles_of_one_report_with_one_unique_key_are_one(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, after("u", unique_key="k"), after("u", unique_key="k", when="always"), after("v"))
    assert sum(engine.status().counts.values()) == 3


def test_the_same_root_may_ask_twice(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(), child())
    a, b = pool.claim(2)
    pool.turn(
        report(a, "success", spawned=[after("u", unique_key="k")]),
        report(b, "success", spawned=[after("u", unique_key="k")]),
    )
    assert states(engine, id, newest(engine)) == ["completed", "pending"]
    assert sum(engine.status().counts.values()) == 4


# ── roots that do not complete ──────────────────────────────────────────────────────────────────────────────────────


def test_a_dead_root_keeps_its_uncle_blocked_because_a_retry_may_turn_it(engine: Engine, pool: HandPool) -> None:
    id, kid, uncle = with_uncle(engine, pool)
    pool.fail(pool.claim_one())
    assert states(engine, id, uncle) == ["dead", "blocked"]
    assert f"{id}" in engine.why(uncle).reason
    assert "dead" in engine.why(uncle).reason
    engine.retry([kid])
    assert states(engine, id, uncle) == ["waiting", "blocked"]
    pool.succeed(pool.claim_one())
    assert states(engine, id, uncle) == ["completed", "pending"]


def test_status_and_why_name_an_uncle_all_of_whose_roots_are_dead(engine: Engine, pool: HandPool) -> None:
    first, kid, uncle = with_uncle(engine, pool, unique_key="k")
    second, other, _ = with_uncle(engine, pool, unique_key="k")
    with_uncle(engine, pool, when="always")
    running = claims(pool, 3)

    def stranded() -> list[str]:
        return [finding.text for finding in engine.status().findings if "blocked for ever" in finding.text]

    pool.fail(running[kid])
    assert stranded() == []  # the other one may still complete
    pool.fail(running[other])
    assert stranded() == [f"job {uncle} is blocked for ever: root {first} is dead"]
    assert engine.status().health == "warning"
    found = engine.why(uncle)
    assert found.reason.startswith("blocked for ever, because nothing that it waits for completed")
    assert found.advice == [f"covey retry {first}", f"covey retry {second}", f"covey cancel {uncle}"]
    engine.cancel([uncle])
    assert stranded() == []


def test_an_uncle_waits_on_once_its_dead_root_is_retried(engine: Engine, pool: HandPool) -> None:
    id, kid, uncle = with_uncle(engine, pool)
    pool.fail(pool.claim_one())
    assert any(f"job {uncle} is blocked for ever" in note for note in engine.status().notes)
    engine.retry([kid])
    assert not any("blocked for ever" in note for note in engine.status().notes)
    assert engine.why(uncle).reason == f"blocked until root {id} has ended"


def test_a_retried_root_is_waited_for_again(engine: Engine, pool: HandPool) -> None:
    first, kid, uncle = with_uncle(engine, pool, unique_key="k")
    second, other, _ = with_uncle(engine, pool, unique_key="k")
    running = claims(pool, 2)
    pool.fail(running[kid])
    engine.retry([first])
    pool.succeed(running[other])
    assert states(engine, first, second, uncle) == ["waiting", "completed", "blocked"]
    pool.succeed(pool.claim_one())
    assert states(engine, first, uncle) == ["completed", "pending"]


def test_an_uncle_that_runs_always_runs_after_a_dead_root_too(engine: Engine, pool: HandPool) -> None:
    id, _, uncle = with_uncle(engine, pool, when="always")
    pool.fail(pool.claim_one())
    assert states(engine, id, uncle) == ["dead", "pending"]


def test_one_good_root_is_enough_once_none_is_open(engine: Engine, pool: HandPool) -> None:
    with_uncle(engine, pool, unique_key="k")
    uncle = newest(engine)
    with_uncle(engine, pool, unique_key="k")
    a, b = pool.claim(2)
    pool.fail(a)
    assert states(engine, uncle) == ["blocked"]
    pool.succeed(b)
    assert states(engine, uncle) == ["pending"]


@pytest.mark.parametrize("when", ["success", "always"])
def test_an_uncle_whose_roots_were_all_cancelled_or_removed_is_cancelled_unless_it_runs_always(
    engine: Engine, pool: HandPool, when: str
) -> None:
    first, _, uncle = with_uncle(engine, pool, unique_key="k", when=when)
    second, kid, _ = with_uncle(engine, pool, unique_key="k", when=when)
    engine.cancel([kid])
    assert states(engine, second, uncle) == ["dead", "blocked"]
    engine.remove([second])
    assert states(engine, uncle) == ["blocked"]
    engine.cancel([first])
    assert states(engine, uncle) == ["cancelled" if when == "success" else "pending"]
    if when == "success":
        assert "waited for" in (engine.job(uncle).error or "")


def test_a_cancelled_root_ends_for_its_uncle_when_its_processes_are_gone(engine: Engine, pool: HandPool) -> None:
    id, _, uncle = with_uncle(engine, pool, when="always")
    claim = pool.claim_one()
    engine.cancel([id])
    assert states(engine, id, uncle) == ["cancelled", "blocked"]
    pool.report(claim, "gone")
    assert states(engine, uncle) == ["pending"]


def test_pruning_or_removing_a_completed_root_leaves_its_uncles_as_they_are(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    id, _, uncle = with_uncle(engine, pool, unique_key="k", delay_s=90 * 86400)
    pool.succeed(pool.claim_one())
    assert states(engine, uncle) == ["scheduled"]
    clock.advance(8 * 86400)
    for _ in range(3):
        clock.advance(31)
        pool.beat()
    assert engine.store.row(id) is None
    later, _, _ = with_uncle(engine, pool, unique_key="k")
    engine.cancel([later])
    assert states(engine, uncle) == ["scheduled"]  # one of its roots completed


def test_a_chain_of_uncles_is_cancelled_to_its_end(engine: Engine, pool: HandPool) -> None:
    id, _, uncle = with_uncle(engine, pool)
    engine.cancel([id])
    assert states(engine, uncle) == ["cancelled"]


def test_a_retried_uncle_waits_again_for_what_has_not_ended(engine: Engine, pool: HandPool) -> None:
    id, _, uncle = with_uncle(engine, pool)
    engine.cancel([uncle])
    engine.retry([uncle])
    assert states(engine, uncle) == ["blocked"]
    pool.succeed(pool.claim_one())
    assert states(engine, id, uncle) == ["completed", "pending"]


def test_a_blocked_uncle_can_be_edited_and_is_not_retried(engine: Engine, pool: HandPool) -> None:
    _, _, uncle = with_uncle(engine, pool)
    engine.edit(uncle, Edit(priority=5))
    assert (engine.job(uncle).priority, engine.job(uncle).state) == (5, "blocked")
    with pytest.raises(Refused):
        engine.retry([uncle])


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_uncle_s_key_is_a_top_level_key_and_the_same_call_is_the_same_job(engine: Engine, pool: HandPool) -> None:
    first, _, uncle = with_uncle(engine, pool, key="report")
    second, _, _ = with_uncle(engine, pool, key="report")
    assert engine.job("report").id == uncle
    a, b = pool.claim(2)
    pool.succeed(a)
    assert states(engine, first, uncle) == ["completed", "blocked"]
    pool.succeed(b)
    assert states(engine, second, uncle) == ["completed", "pending"]


def test_an_uncle_s_key_that_means_another_call_is_an_error(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command("other", key="report", delay_s=99)])
    id = root(engine, pool, child(), after("uncle", key="report"))
    assert states(engine, id) == ["dead"]
    assert "report" in (engine.job(id).error or "")
    assert sum(engine.status().counts.values()) == 2


def test_a_child_s_unique_key_is_no_uncle_s(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(unique_key="k"), after("uncle", unique_key="k"))
    assert states(engine, id) == ["dead"]
    root(engine, pool, child(unique_key="k", delay_s=99))
    other = root(engine, pool, after("uncle", unique_key="k"))
    assert states(engine, other) == ["dead"]


def test_one_run_that_names_an_uncle_twice_has_one_that_runs_as_either_says(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, child(max_attempts=1), after("u", key="k"), after("u", key="k", when="always"), after("v"))
    assert sum(engine.status().counts.values()) == 4
    pool.fail(pool.claim_one())
    assert states(engine, id, engine.job("k").id) == ["dead", "pending"]
    other = root(engine, pool, after("u", key="n"), after("other", key="n"))
    assert states(engine, other) == ["dead"]
    assert f"another uncle of job {other}" in (engine.job(other).error or "")
