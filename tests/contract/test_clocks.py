"""A clock that was ahead for a while: what it has put off happens all the same, and what people chose is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from covey.core.model import Claim
from covey.core.view import Edit, Filter
from covey.engine.engine import Engine
from covey.errors import NotFound
from covey.testing import FakeClock
from tests.kit import HandPool, child, command
from tests.kit.hand_pool import report

from .family import root

BEHIND = True  # a server has one clock for all that it is asked
DAY = 86_400.0
JUMP_S = 100 * DAY


@contextmanager
def ahead(clock: FakeClock, pool: HandPool, *held: Claim) -> Iterator[None]:
    """A hundred days too early; a pool takes turns meanwhile, and its duties with them."""
    clock.advance(JUMP_S)
    pool.beat(*held)
    yield
    pool.beat(*held)
    clock.advance(-JUMP_S)


@pytest.fixture
def other(connect: Callable[[], Engine]) -> HandPool:
    """A pool beside it, on a connection of its own."""
    return HandPool(connect())


def tend(clock: FakeClock, *pools: HandPool, for_s: float = 31.0) -> None:
    """So much time passes, with the beats that come in it."""
    while for_s > 0:
        clock.advance(min(31.0, for_s))
        for_s -= 31.0
        for pool in pools:
            pool.beat()


def is_there(engine: Engine, id: int) -> bool:
    try:
        return engine.job(id).id == id
    except NotFound:
        return False


def test_after_a_clock_was_ahead_old_jobs_are_pruned_as_before(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    engine.set_setting("keep_completed_seconds", "40")
    with ahead(clock, pool):
        pass
    (made,) = engine.enqueue([command()])
    other.succeed(other.claim_one())
    tend(clock, other, for_s=93)
    assert not is_there(engine, made.id)


def test_the_pool_whose_clock_it_was_goes_on_with_its_duties_too(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    engine.set_setting("keep_completed_seconds", "40")
    with ahead(clock, pool):
        pass
    (made,) = engine.enqueue([command()])
    pool.succeed(pool.claim_one())
    tend(clock, pool, for_s=93)
    assert not is_there(engine, made.id)


def test_after_a_clock_was_ahead_parents_are_healed_as_before(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    parent = root(engine, pool, child())
    with ahead(clock, pool):
        pass
    engine.store.raw("update {jobs} set state = 'completed', finished_at = 1 where parent_id = :parent", parent=parent)
    tend(clock, other)
    assert engine.job(parent).state == "completed"


def test_requests_that_came_ahead_are_known_for_an_hour_and_then_forgotten(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    with ahead(clock, pool):
        (first,) = engine.enqueue([command()], request="r")
    tend(clock, other, for_s=3000)
    (again,) = engine.enqueue([command()], request="r")
    assert again.id == first.id
    tend(clock, other, for_s=700)
    (new,) = engine.enqueue([command()], request="r")
    assert new.id != first.id


def test_what_failed_ahead_is_tried_again_after_its_own_back_off(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    plain, later, snoozed = (made.id for made in engine.enqueue([command(priority=-n) for n in range(3)]))
    with ahead(clock, pool):
        pool.fail(pool.claim_one())
        pool.fail(pool.claim_one(), after_s=DAY)
        pool.turn(report(pool.claim_one(), "snooze", after_s=600))
    assert [engine.job(id).state for id in (plain, later, snoozed)] == ["failed", "failed", "scheduled"]
    other.beat()
    tend(clock, other, for_s=124)
    assert other.claim(9) == []
    clock.advance(3)
    (claim,) = other.claim(9)
    assert claim.id == plain
    other.succeed(claim)
    clock.advance(600)
    (claim,) = other.claim(9)
    assert claim.id == snoozed
    other.succeed(claim)
    clock.advance(DAY)
    assert [claim.id for claim in other.claim(9)] == [later]
    assert [event.kind for event in engine.events(plain)] == ["healed"]


def test_what_fails_ahead_after_others_have_noticed_is_mended_as_well(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    """Its duties are done, so nothing tells of it anew."""
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    with ahead(clock, pool, claim):
        pass
    other.beat()
    clock.advance(JUMP_S + 10)
    pool.fail(claim)
    clock.advance(-JUMP_S)
    assert engine.job(made.id).state == "failed"
    tend(clock, other, for_s=155)
    assert other.claim_one().id == made.id


def test_an_hour_that_a_person_chose_is_kept_whoever_wrote_it(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    chosen = clock() + int(200 * DAY * 1_000_000)
    (failing,) = engine.enqueue([command(priority=1)])
    with ahead(clock, pool):
        (scheduled,) = engine.enqueue([command(run_at=chosen)])
        (delayed,) = engine.enqueue([command(delay_s=DAY)])
        pool.fail(pool.claim_one())
        engine.edit(failing.id, Edit(run_at=chosen))
    before = [engine.job(made.id).run_at for made in (failing, scheduled, delayed)]
    assert before[0] == before[1]
    tend(clock, other, for_s=200)
    assert [engine.job(made.id).run_at for made in (failing, scheduled, delayed)] == before


def test_a_pause_that_began_ahead_lasts_as_long_as_was_asked(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    engine.enqueue([command()])
    with ahead(clock, pool):
        engine.pause("default", for_s=600)
        engine.pause("ever")
    other.beat()
    tend(clock, other, for_s=560)
    assert other.claim(1) == []
    tend(clock, other, for_s=62)
    assert other.claim(1)
    assert [queue.name for queue in engine.queues() if queue.paused] == ["ever"]


def test_a_tree_that_began_ahead_has_as_much_time_as_was_asked(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    with ahead(clock, pool):
        late, fine, planned = (
            made.id
            for made in engine.enqueue(
                [
                    command("late", tree_timeout_s=600, queue="unserved"),
                    command("fine", tree_timeout_s=6000, queue="unserved"),
                    command("planned", tree_timeout_s=60, queue="unserved", delay_s=DAY),
                ]
            )
        )
    other.beat()
    tend(clock, other, for_s=560)
    assert [engine.job(id).state for id in (late, fine, planned)] == ["pending", "pending", "scheduled"]
    tend(clock, other, for_s=62)
    assert [engine.job(id).state for id in (late, fine, planned)] == ["dead", "pending", "scheduled"]
    assert "not done within 600 s" in str(engine.job(late).error)


def test_what_ended_ahead_is_kept_as_long_as_was_asked_and_then_pruned(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    engine.set_setting("keep_events_seconds", "600")
    engine.set_setting("keep_completed_seconds", "600")
    completed, dead = (made.id for made in engine.enqueue([command(), command(max_attempts=1)]))
    one, two = pool.claim(2)
    with ahead(clock, pool, one, two):
        pool.turn(report(one, "success"), report(two, "failure", error="e"))
        engine.pause("x")
    other.beat()
    tend(clock, other, for_s=560)
    assert is_there(engine, completed)
    assert "paused" in [event.kind for event in engine.events()]
    tend(clock, other, for_s=93)
    assert not is_there(engine, completed)
    assert "paused" not in [event.kind for event in engine.events()]
    assert engine.job(dead).state == "dead"  # those are kept for ever


def test_a_clock_that_was_behind_for_a_while_takes_nothing_away(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    """A machine without a battery wakes up long ago, and learns the time a minute later."""
    engine.set_setting("keep_completed_seconds", "3600")
    (made,) = engine.enqueue([command(tree_timeout_s=3600)], request="r")
    pool.succeed(pool.claim_one())
    (still,) = engine.enqueue([command(tree_timeout_s=3600, queue="unserved")])
    engine.pause("held", for_s=3600)
    pool.beat()
    events = len(engine.events())
    clock.advance(-300 * DAY)
    tend(clock, other, for_s=124)
    assert is_there(engine, made.id)
    clock.advance(300 * DAY)
    tend(clock, pool, other, for_s=62)
    assert is_there(engine, made.id)
    assert engine.job(still.id).state == "pending"
    assert engine.enqueue([command(tree_timeout_s=3600)], request="r")[0].id == made.id
    assert "held" in [queue.name for queue in engine.queues() if queue.paused]
    assert len(engine.events()) >= events


def test_a_clock_that_was_behind_for_a_minute_hurries_no_back_off_and_no_snooze(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    made = [made.id for made in engine.enqueue([command(), command(priority=-1)])]
    pool.fail(pool.claim_one(), after_s=DAY)
    pool.turn(report(pool.claim_one(), "snooze", after_s=7 * DAY))
    pool.beat()
    before = [engine.job(id).run_at for id in made]
    clock.advance(-300 * DAY)
    tend(clock, other, for_s=62)
    clock.advance(300 * DAY)
    tend(clock, other, for_s=200)
    assert [engine.job(id).run_at for id in made] == before


def test_one_pool_of_two_that_is_behind_hurries_no_back_off(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command()])
    pool.fail(pool.claim_one(), after_s=DAY)
    before = engine.job(made.id).run_at
    for _ in range(8):
        pool.beat()
        clock.advance(-300 * DAY)
        other.beat()
        clock.advance(300 * DAY + 31)
    assert pool.claim(9) == []
    assert engine.job(made.id).run_at == before


def test_what_ended_ahead_a_second_time_is_kept_as_long_as_was_asked(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    engine.set_setting("keep_completed_seconds", "3600")
    with ahead(clock, pool):
        pass
    tend(clock, other, pool)
    clock.advance(2 * DAY)
    other.beat()
    pool.beat()
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    with ahead(clock, pool, claim):
        pool.succeed(claim)
        clock.advance(31)
        pool.beat()
        clock.advance(-31)
    tend(clock, other, for_s=93)
    assert is_there(engine, made.id)


@pytest.mark.parametrize("before", [False, True], ids=["the first time", "long after another"])
def test_what_a_client_ahead_has_begun_lasts_as_long_as_was_asked(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock, before: bool
) -> None:
    """No pool's clock was ahead, so no duty tells of it."""
    if before:
        with ahead(clock, pool):
            pass
        tend(clock, other, pool)
        clock.advance(2 * DAY)
        tend(clock, other, pool)
    clock.advance(JUMP_S)
    (late,) = engine.enqueue([command(tree_timeout_s=600, queue="unserved")])
    engine.pause("default", for_s=600)
    clock.advance(-JUMP_S)
    tend(clock, other, pool, for_s=560)
    assert engine.job(late.id).state == "pending"
    assert [queue.name for queue in engine.queues() if queue.paused] == ["default"]
    tend(clock, other, pool, for_s=93)
    assert engine.job(late.id).state == "dead"
    assert not any(queue.paused for queue in engine.queues())


def test_a_request_of_a_client_ahead_is_known_for_an_hour_long_after_another_clock_was(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    with ahead(clock, pool):
        pass
    tend(clock, other, pool)
    clock.advance(2 * DAY)
    tend(clock, other, pool)
    clock.advance(JUMP_S)
    (first,) = engine.enqueue([command()], request="r")
    clock.advance(-JUMP_S)
    tend(clock, other, pool, for_s=3000)
    (again,) = engine.enqueue([command()], request="r")
    assert again.id == first.id


def test_status_says_that_a_clock_was_ahead_and_what_it_has_written(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    tend(clock, pool, other)
    assert "clock" not in " ".join(engine.status().notes)
    with ahead(clock, pool):
        engine.pause("lunch", for_s=60)
        engine.enqueue([command()], request="r")
        engine.create_token("ci", "client", expires_s=60)
    (found,) = [finding for finding in engine.status().findings if "clock" in finding.text]
    assert found.level == "warning"
    assert "housekeeping put off: heal 2026-04-11" in found.text
    assert found.advice is not None
    assert "timedatectl" in found.advice
    kinds = {what for what, _, _ in engine.store.ask("ahead", ahead=clock() + 60_000_000, late=clock() + 90_000_000)}
    assert kinds == {"duty", "pause", "pool", "token", "job", "events", "requests"}
    pool.beat()
    engine.revoke_token("ci")
    engine.enqueue([command()])
    tend(clock, pool, other, for_s=93)
    (found,) = [finding for finding in engine.status().findings if "clock" in finding.text]
    assert found.level == "note"  # nothing waits for it any more


def test_a_pool_elsewhere_whose_last_beat_lies_ahead_does_not_live_for_ever(
    engine: Engine, pool: HandPool, other: HandPool, clock: FakeClock
) -> None:
    with ahead(clock, pool):
        pass
    other.beat()
    assert engine.status().pools == 1
    assert [view.beat_age_s for view in engine.pool_views()] == [-JUMP_S, 0.0]
    assert engine.jobs(Filter()).jobs == []
