"""What can be seen: pages, counts, events, pools."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from covey.core.machine import SECOND
from covey.core.model import STATES
from covey.core.view import Filter, rfc3339
from covey.engine.engine import Engine
from covey.errors import InvalidInput
from covey.testing import FakeClock, HandPool, check_queue, command, python_task


def test_a92_paging_misses_and_repeats_no_job_while_others_come_and_go(
    engine: Engine, proof: Callable[[int, int], int]
) -> None:
    count = proof(1000, 20_000)
    ids = [made.id for made in engine.enqueue([command() for _ in range(count)])]
    dice, seen, before = Random(2), [], None
    while True:
        page = engine.jobs(Filter(before=before, limit=dice.choice([1, 7, 50, 200])))
        seen += [job.id for job in page.jobs]
        engine.enqueue([command()])  # newer ones do not push anything onto the next page
        if page.next is None:
            break
        before = page.next
    assert seen == ids[::-1]


def test_the_last_page_says_so(engine: Engine) -> None:
    engine.enqueue([command() for _ in range(10)])
    assert engine.jobs(Filter(limit=10)).next is None
    assert engine.jobs(Filter(limit=9)).next is not None
    assert engine.jobs(Filter(before=1)).jobs == []


def test_filters_name_states_queue_task_batch_and_ids(engine: Engine, pool: HandPool) -> None:
    one, two, three, four = (
        made.id
        for made in engine.enqueue(
            [
                command(queue="a", batch="x", max_attempts=1, priority=9),
                python_task("t", queue="a"),
                command(queue="b", batch="x", priority=8),
                command(queue="b", delay_s=5),
            ]
        )
    )
    pool.fail(pool.claim_one())
    pool.claim_one()
    ids = lambda **wanted: [job.id for job in engine.jobs(Filter(**wanted)).jobs]  # noqa: E731
    assert ids(states=("dead",)) == [one]
    assert ids(states=("processing",)) == [three]
    assert ids(states=("dead", "scheduled")) == [four, one]
    assert ids(queue="a") == [two, one]
    assert ids(task="t") == [two]
    assert ids(batch="x") == [three, one]
    assert ids(batch="x", states=("processing",), queue="b") == [three]
    assert ids(ids=(two, four, 999)) == [four, two]
    assert ids(ids=()) == []
    assert ids(queue="nothing") == []


def test_a_bad_filter_is_refused(engine: Engine) -> None:
    for wanted in (Filter(states=("done",)), Filter(limit=0), Filter(limit=10_001)):
        with pytest.raises(InvalidInput):
            engine.jobs(wanted)


def test_status_counts_every_state_and_every_queue(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    assert engine.status().counts == dict.fromkeys(STATES, 0)
    engine.enqueue([command(queue="a", priority=n, max_attempts=1 if n == 9 else 3) for n in (9, 8, 7, 6)])
    engine.enqueue([command(queue="b", delay_s=100)])
    (victim,) = engine.enqueue([command(queue="b")])
    pool.fail(pool.claim_one())
    pool.fail(pool.claim_one())
    pool.succeed(pool.claim_one())
    engine.cancel([victim.id])
    clock.advance(1)
    status = engine.status()
    expected = {"dead": 1, "failed": 1, "completed": 1, "pending": 1, "scheduled": 1, "cancelled": 1}
    assert status.counts == dict.fromkeys(STATES, 0) | expected
    assert {queue.name: queue.counts for queue in status.queues} == {
        "a": {"dead": 1, "failed": 1, "completed": 1, "pending": 1},
        "b": {"scheduled": 1, "cancelled": 1},
    }
    assert (status.pools, status.oldest_pending_s) == (1, 1.0)
    assert status.next_run_at == rfc3339(clock() + 1 * SECOND)
    assert status.durability == "full"
    assert status.database_id == engine.database_id
    assert check_queue(engine) == []


def test_status_warns_of_what_a_person_should_know(engine: Engine, clock: FakeClock) -> None:
    assert (engine.status().health, engine.status().notes) == ("fine", [])
    engine.enqueue([command(queue="a", max_attempts=1)])
    assert "no worker runs" in " ".join(engine.status().notes)
    engine.pause("a")
    assert "paused: a" in engine.status().notes
    engine.resume("a")
    pool = HandPool(engine)
    pool.fail(pool.claim_one())
    assert "1 dead letter" in " ".join(engine.status().notes)
    clock.advance(31)
    assert "pools are gone" in " ".join(engine.status().notes)


def test_events_are_newest_first_and_can_be_asked_per_job(engine: Engine, pool: HandPool) -> None:
    one, two = engine.enqueue([command(), command()])
    engine.cancel([one.id])
    engine.retry([one.id])
    engine.cancel([two.id])
    assert [event.kind for event in engine.events(one.id)] == ["retried", "cancelled"]
    assert [event.id for event in engine.events()] == sorted((event.id for event in engine.events()), reverse=True)
    assert len(engine.events(limit=2)) == 2
    assert "pool_started" in [event.kind for event in engine.events()]


def test_pool_views_show_pools_until_they_leave(engine: Engine, clock: FakeClock) -> None:
    pool = HandPool(engine, name="p", queues=("a", "b"), kinds=("command",), count=3)
    clock.advance(12)
    (view,) = engine.pool_views()
    assert (view.name, view.queues, view.kinds, view.count, view.host) == ("p", ["a", "b"], ["command"], 3, "host-a")
    assert (view.beat_age_s, view.held, view.state) == (12.0, 0, "running")
    engine.leave(pool.id)
    assert engine.pool_views() == []


def test_p20_times_are_rfc3339_in_utc(engine: Engine, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    assert engine.job(made.id).created_at == "2026-01-01T00:00:00.000Z"
    assert rfc3339(1) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(None) is None
