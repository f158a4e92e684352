"""Retention: what ended long ago goes, bounded, inside turns."""

from __future__ import annotations

import pytest

from covey.core.view import Filter
from covey.engine import duties
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, child, command

from .family import root

BEHIND = True
DAY = 86_400.0


def ended(engine: Engine, pool: HandPool) -> dict[str, int]:
    """One completed, one dead, one cancelled job, and one of each unfinished kind."""
    completed, dead, cancelled, failed, running, pending, scheduled = engine.enqueue(
        [
            command(priority=5),
            command(priority=4, max_attempts=1),
            command(priority=-1),
            command(priority=3),
            command(priority=2),
            command(queue="unserved"),
            command(delay_s=1000 * DAY),
        ]
    )
    pool.succeed(pool.claim_one())
    pool.fail(pool.claim_one())
    engine.cancel([cancelled.id])
    pool.fail(pool.claim_one(), after_s=1000 * DAY)
    pool.claim_one()
    return {
        "completed": completed.id,
        "dead": dead.id,
        "cancelled": cancelled.id,
        "failed": failed.id,
        "processing": running.id,
        "pending": pending.id,
        "scheduled": scheduled.id,
    }


def there(engine: Engine) -> set[str]:
    return {job.state for job in engine.jobs(Filter()).jobs}


def test_completed_jobs_stay_7_days_cancelled_ones_1_and_dead_letters_for_ever(
    engine: Engine, clock: FakeClock
) -> None:
    pool = HandPool(engine, queues=("default",))
    ids = ended(engine, pool)
    assert {name: engine.job(id).state for name, id in ids.items()} == {name: name for name in ids}
    for days, gone in ((0.99, set()), (1.01, {"cancelled"}), (6.99, {"cancelled"}), (7.01, {"cancelled", "completed"})):
        clock.now = clock.now + 1
        start = clock.now
        clock.advance(days * DAY)
        for _ in range(4):  # a period passes between sweeps, and a sweep goes round in windows
            clock.advance(31)
            pool.turn(workers=[])
        assert there(engine) == ids.keys() - gone
        clock.now = start
    clock.advance(900 * DAY)
    for _ in range(4):
        clock.advance(31)
        pool.turn(workers=[])
    assert "dead" in there(engine)


def test_retention_can_be_set_and_switched_off(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.set_setting("keep_completed_seconds", "never")
    engine.set_setting("keep_dead_seconds", "60")
    engine.enqueue([command(), command(max_attempts=1)])
    pool.succeed(pool.claim_one())
    pool.fail(pool.claim_one())
    clock.advance(365 * DAY)
    for _ in range(4):
        clock.advance(31)
        pool.turn(workers=[])
    assert there(engine) == {"completed"}


def test_a_cancelled_job_that_is_still_stopping_is_kept(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    engine.cancel([made.id])
    clock.advance(30 * DAY)
    for _ in range(4):
        clock.advance(31)
        pool.turn(held=[claim])
    assert engine.job(made.id).pool == pool.id


def test_a_backlog_of_old_jobs_is_pruned_turn_by_turn_without_waiting_a_period_between(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    made = engine.enqueue([command() for _ in range(1500)])
    engine.cancel([each.id for each in made])
    clock.advance(2 * DAY)
    left = []
    for _ in range(3):
        pool.turn(workers=[])
        left.append(engine.status().counts["cancelled"])
    assert left == [500, 0, 0]


def test_old_events_are_pruned(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    engine.cancel([made.id])
    assert engine.events()
    clock.advance(31 * DAY)
    pool.turn(workers=[])
    assert engine.events() == []


def test_a_pruned_job_s_key_is_free_and_its_id_is_not(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (old,) = engine.enqueue([command(key="k")])
    engine.cancel([old.id])
    clock.advance(2 * DAY)
    pool.turn(workers=[])
    (new,) = engine.enqueue([command(key="k")])
    assert new.id > old.id


def test_a_sweep_of_an_empty_table_or_of_nothing_old_says_so(engine: Engine, clock: FakeClock) -> None:
    assert engine.newest_id() == 0
    assert engine.prune_window(0, {"dead": 1 << 60}) == (None, 0)
    one, two = (made.id for made in engine.enqueue([command(), command()]))
    engine.cancel([one, two])
    assert engine.newest_id() == two
    assert engine.prune_window(0, {"dead": 1 << 60}) == (two, 0)
    assert engine.prune_window(0, {"cancelled": clock()}) == (two, 0)
    assert engine.prune_window(0, {"cancelled": clock() + 1}) == (two, 2)
    assert engine.prune_window(two, {"cancelled": clock() + 1}) == (None, 0)


def test_a_tree_goes_whole_or_in_several_sweeps_its_root_last(
    engine: Engine, pool: HandPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 3)
    roots = [root(engine, pool, child(), child()) for _ in range(2)]
    engine.cancel(roots)
    ended, gone, cursor = {"cancelled": 1 << 60}, [], 0
    while cursor is not None:
        cursor, count = engine.prune_window(cursor, ended)
        gone.append(count)
    assert gone == [3, 3, 0]
    (wide,) = [root(engine, pool, *(child() for _ in range(4)))]
    engine.cancel([wide])
    assert engine.prune_window(0, ended) == (wide - 1, 3)
    assert engine.job(wide).state == "cancelled"
    assert engine.prune_window(wide - 1, ended)[1] == 2
    assert engine.newest_id() == 0
