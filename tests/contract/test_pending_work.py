"""Engine.pending_work: what there is to do, for whoever wakes pools."""

from __future__ import annotations

import pytest

from covey.core.machine import SECOND
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, child, command, python_task

from .family import parent_of, root

BEHIND = True


def ready(engine: Engine) -> dict[tuple[str, str], int]:
    return {(queue, kind): count for queue, kind, count in engine.pending_work().ready}


def test_a_quiet_queue_has_none(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.enqueue([command()])
    pool.claim_one()
    found = engine.pending_work()
    assert (found.ready, found.stops, found.cancels, found.due_at, found.now) == ([], set(), {}, None, clock())


def test_what_could_be_claimed_is_counted_per_queue_and_kind(engine: Engine) -> None:
    engine.enqueue([command() for _ in range(3)] + [python_task("t", queue="b"), python_task("t", queue="b")])
    engine.enqueue([python_task("t", kind="async", queue="b"), command(delay_s=9)])
    assert ready(engine) == {("default", "command"): 3, ("b", "sync"): 2, ("b", "async"): 1}


def test_nobody_counts_further_than_a_thousand(engine: Engine) -> None:
    engine.enqueue([command() for _ in range(1200)])
    assert ready(engine) == {("default", "command"): 1000}


def test_a_paused_queue_is_left_out_until_its_pause_is_over(engine: Engine, clock: FakeClock) -> None:
    engine.enqueue([command(), command(queue="b")])
    engine.pause("b", for_s=10)
    assert ready(engine) == {("default", "command"): 1}
    clock.advance(11)
    assert ready(engine) == {("default", "command"): 1, ("b", "command"): 1}


def test_a_limit_bounds_the_count_of_each_kind(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("narrow", concurrency=3)
    engine.enqueue([command(queue="narrow") for _ in range(5)] + [python_task("t", queue="narrow")])
    assert ready(engine) == {("narrow", "command"): 3, ("narrow", "sync"): 1}
    claims = pool.claim(2)
    assert ready(engine) == {("narrow", "command"): 1, ("narrow", "sync"): 1}
    pool.claim(1)
    assert ready(engine) == {}
    engine.cancel([claims[0].id])  # its processes still count
    assert ready(engine) == {}


def test_of_a_serial_queue_only_the_next_tree_counts(engine: Engine, pool: HandPool) -> None:
    engine.set_queue("line", serial=True)
    engine.enqueue([command(queue="line") for _ in range(5)])
    assert ready(engine) == {("line", "command"): 1}
    claim = pool.claim_one()
    assert ready(engine) == {}
    pool.spawn(claim, child(), child())
    assert ready(engine) == {("line", "command"): 2}
    (guest,) = engine.enqueue([command("root", queue="away")])
    visitor = HandPool(engine, queues=("away",))
    visitor.spawn(visitor.claim_one(), child(queue="line"))  # may pass
    assert engine.job(guest.id).state == "waiting"
    assert ready(engine) == {("line", "command"): 3}


@pytest.mark.parametrize("serial", [False, True])
def test_what_is_counted_is_what_is_claimed(engine: Engine, pool: HandPool, serial: bool) -> None:
    engine.set_queue("q", serial=serial, concurrency=4)
    engine.enqueue([command(queue="q", priority=n % 2) for n in range(9)])
    while counted := ready(engine):
        claims = pool.claim(100)
        assert len(claims) == counted["q", "command"]
        for claim in claims:
            pool.succeed(claim)
    assert engine.status().counts["completed"] == 9


def test_stops_and_cancels_name_their_pools(engine: Engine, pool: HandPool) -> None:
    other = HandPool(engine, name="other")
    engine.enqueue([command() for _ in range(4)])
    first, second = pool.claim(2)
    third = other.claim_one()
    engine.cancel([first.id, third.id])
    engine.stop_pools([other.id])
    found = engine.pending_work()
    assert found.cancels == {pool.id: {(first.id, first.fence)}, other.id: {(third.id, third.fence)}}
    assert found.stops == {other.id}
    pool.report(first, "gone")
    assert engine.pending_work().cancels == {other.id: {(third.id, third.fence)}}
    pool.succeed(second)


def test_cancelled_with_their_family_counts_too(engine: Engine, pool: HandPool) -> None:
    id, kids = parent_of(engine, pool, 2)
    first, second = pool.claim(2)
    engine.cancel([id])
    assert {first.id, second.id} == set(kids)
    assert engine.pending_work().cancels == {pool.id: {(first.id, first.fence), (second.id, second.fence)}}


def test_it_says_when_something_happens_by_itself(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.enqueue([command(delay_s=50), command(delay_s=20)])
    assert engine.pending_work().due_at == clock() + 20 * SECOND
    root(engine, pool, child(), tree_timeout_s=5.0)
    assert engine.pending_work().due_at == clock() + 5 * SECOND
    clock.advance(60)  # over, and still to be done by somebody's turn
    assert engine.pending_work().due_at == clock() - 55 * SECOND


def test_it_reads_only(engine: Engine, pool: HandPool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.enqueue([command(), command(delay_s=1)])
    monkeypatch.setattr(engine.store.dialect, "transaction", lambda **_: pytest.fail("it began a transaction"))
    assert len(engine.pending_work().ready) == 1
