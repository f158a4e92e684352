"""Client.wait_for and Source.wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from covey.engine.engine import Engine
from covey.testing import until
from tests.kit import HandPool, command


def test_waiting_for_ended_jobs_returns_at_once(engine: Engine, pool: HandPool) -> None:
    one, two = engine.enqueue([command(), command(max_attempts=1)])
    pool.succeed(pool.claim_one())
    pool.fail(pool.claim_one())
    assert engine.wait_for([one.id, two.id], None)
    assert engine.wait_for([], 0)


def test_waiting_gives_up_at_its_time(engine: Engine, pool: HandPool) -> None:
    one, two = engine.enqueue([command(), command()])
    pool.succeed(pool.claim_one())
    assert not engine.wait_for([one.id, two.id], 0)
    assert not engine.wait_for([one.id, two.id], 0.05)
    assert engine.wait_for([one.id, two.id], 0.05, any_of=True)
    assert not engine.wait_for([two.id], 0, any_of=True)


def test_waiting_for_forty_thousand_jobs(engine: Engine, pool: HandPool) -> None:
    ids = [made.id for made in engine.enqueue([command() for _ in range(40_000)])]
    engine.cancel(ids[:100])
    assert engine.wait_for(ids, 0.0, any_of=True)
    assert not engine.wait_for(ids, 0.0)
    assert engine.wait_for(ids[:100] * 3, 0.0)


@pytest.mark.parametrize("end", ["success", "cancel"])
def test_a_waiter_is_woken_when_the_job_ends_elsewhere(engine: Engine, connect: Callable[[], Engine], end: str) -> None:
    (made,) = engine.enqueue([command()])
    other = connect()
    pool = HandPool(other)
    claim = pool.claim_one()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(engine.wait_for([made.id], 30)))
    thread.start()
    pool.succeed(claim) if end == "success" else other.cancel([made.id])
    until(lambda: answers, 10, "the waiter returns")
    thread.join()
    assert answers == [True]


def test_an_idle_pool_is_woken_by_an_enqueue(engine: Engine, connect: Callable[[], Engine]) -> None:
    pool = HandPool(engine)
    engine.wait(pool.id, None, 0)  # from here on it has ears
    connect().enqueue([command()])
    assert until(lambda: engine.wait(pool.id, None, 0.5), 10)
    assert pool.claim_one()


def test_waiting_is_a_hint_without_side_effects(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    before = engine.pools(), engine.status().counts
    for _ in range(3):
        engine.wait(pool.id, ("default",), 0.001)
    assert (engine.pools(), engine.status().counts) == before


def test_wake_ends_another_thread_s_wait(engine: Engine, pool: HandPool) -> None:
    engine.wait(pool.id, None, 0)
    woken: list[float] = []

    def wait_long() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not engine.wait(pool.id, None, 30):
            pass
        woken.append(time.monotonic())

    thread = threading.Thread(target=wait_long)
    thread.start()
    until(lambda: engine.wake() or woken, 10, "the other thread wakes")
    thread.join()


def test_resume_rings_for_waiting_pools(engine: Engine, connect: Callable[[], Engine]) -> None:
    other = connect()
    pool = HandPool(engine)
    other.enqueue([command()])
    other.pause("default")
    assert pool.claim(1) == []
    while engine.wait(pool.id, None, 0):
        pass
    other.resume("default")
    assert until(lambda: engine.wait(pool.id, None, 0.5), 10)
    assert len(pool.claim(1)) == 1
