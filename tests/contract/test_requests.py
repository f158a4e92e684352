"""Enqueues with a request id: sent again, they are answered the same and write nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import CoveyError, Duplicate, InvalidInput
from covey.testing import FakeClock
from tests.kit import HandPool, command
from tests.kit.factories import pool_info
from tests.kit.faults import failpoint

from ..postgres.meeting import fine, together

HOUR = 3600.0


def jobs(engine: Engine) -> int:
    return sum(engine.status().counts.values())


def requests(engine: Engine) -> list[Any]:
    """Of enqueues: a pool that comes over HTTP leaves its ticket beside them."""
    found = [row[0] for row in engine.store.raw("select id from {requests} order by id")]
    return [id for id in found if not id.startswith("register:")]


def test_the_same_request_is_answered_the_same_and_writes_nothing(
    engine: Engine, connect: Callable[[], Engine]
) -> None:
    engine.enqueue([command(key="taken")])
    specs = [command("a"), command(key="taken", if_exists="return"), command(key="new"), command("b", delay_s=9)]
    first = engine.enqueue(specs, request="r1")
    assert [made.existing for made in first] == [False, True, False, False]
    before = jobs(engine)
    assert engine.enqueue(specs, request="r1") == connect().enqueue(specs, request="r1") == first
    assert jobs(engine) == before == 4


def test_the_answer_stays_the_same_whatever_became_of_the_jobs(engine: Engine, pool: HandPool) -> None:
    first = engine.enqueue([command(key="k")], request="r1")
    pool.succeed(pool.claim_one())
    assert engine.enqueue([command(key="k")], request="r1") == first
    engine.remove([first[0].id])
    assert engine.enqueue([command(key="k")], request="r1") == first
    assert engine.jobs(Filter()).jobs == []


def test_one_plain_job_of_a_known_queue_is_remembered_too(engine: Engine) -> None:
    engine.enqueue([command()])  # from now on one alone could go the express way
    assert engine.enqueue([command()], request="r1") == engine.enqueue([command()], request="r1")
    assert jobs(engine) == 2


def test_another_request_and_no_request_make_new_jobs(engine: Engine) -> None:
    made = [engine.enqueue([command()], request=request)[0].id for request in ("r1", "r2", "R1", "r1 ", None, None)]
    assert len(set(made)) == 6


def test_a_request_that_asks_for_something_else_is_refused(engine: Engine) -> None:
    (first,) = engine.enqueue([command("a", labels={"x": "1", "y": "2"})], request="r1")
    for other in ([command("b")], [command("a")], [command("a", labels={"x": "1", "y": "2"})] * 2):
        with pytest.raises(InvalidInput, match="'r1'") as refusal:
            engine.enqueue(other, request="r1")
        assert "\n" not in str(refusal.value)
    (again,) = engine.enqueue([command("a", labels={"y": "2", "x": "1"})], request="r1")
    assert (again, jobs(engine)) == (first, 1)


@pytest.mark.parametrize("request_id", ["", "x" * 201, "a\nb", "a\x00", "\ud800"])
def test_a_request_id_that_cannot_be_stored_is_refused(engine: Engine, request_id: str) -> None:
    with pytest.raises(InvalidInput, match="request"):
        engine.enqueue([command()], request=request_id)
    assert jobs(engine) == 0


def test_a_request_that_was_refused_may_be_sent_again(engine: Engine) -> None:
    (first,) = engine.enqueue([command(key="k")])
    with pytest.raises(Duplicate):
        engine.enqueue([command(), command(key="k")], request="r1")
    assert ("r1" in requests(engine), jobs(engine)) == (False, 1)
    engine.cancel([first.id])
    engine.remove([first.id])
    assert len(engine.enqueue([command(), command(key="k")], request="r1")) == 2


def test_the_record_is_written_with_the_jobs_or_not_at_all(engine: Engine) -> None:
    with failpoint("enqueue.before_commit", "raise"), pytest.raises((OSError, CoveyError)):
        engine.enqueue([command()], request="r1")
    assert (requests(engine), jobs(engine)) == ([], 0)
    with failpoint("enqueue.after_commit", "raise"), pytest.raises((OSError, CoveyError)):
        engine.enqueue([command()], request="r1")
    assert (requests(engine), jobs(engine)) == (["r1"], 1)
    (made,) = engine.enqueue([command()], request="r1")  # the answer that got lost
    assert (engine.job(made.id).state, jobs(engine)) == ("pending", 1)


def test_a_request_is_remembered_for_an_hour_and_then_forgotten(engine: Engine, clock: FakeClock) -> None:
    first = engine.enqueue([command()], request="r1")
    clock.advance(HOUR)
    assert engine.enqueue([command()], request="r1") == first
    clock.advance(0.001)
    second = engine.enqueue([command("other")], request="r1")  # nobody has swept yet
    assert second != first
    clock.advance(HOUR)
    assert engine.enqueue([command("other")], request="r1") == second
    assert jobs(engine) == 2


def test_duties_remove_what_is_older_than_an_hour(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.enqueue([command()], request="old")
    clock.advance(HOUR / 2)
    engine.enqueue([command()], request="young")
    clock.advance(HOUR / 2)
    pool.turn(workers=[])
    assert requests(engine) == ["old", "young"]
    clock.advance(31)
    pool.turn(workers=[])
    assert requests(engine) == ["young"]


def test_a_full_batch_of_old_requests_makes_the_next_turn_go_on(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    for n in range(2500):
        engine.store.raw("insert into {requests} (id, digest, ids, at) values (:id, '', '[]', 0)", id=f"r{n}")
    left = []
    clock.advance(2 * HOUR)
    for _ in range(4):
        pool.turn(workers=[])
        left.append(len(requests(engine)))
    assert left == [1500, 500, 0, 0]


@pytest.mark.parametrize("key", [None, "k"], ids=["without key", "with key"])
def test_several_at_the_same_instant_end_with_one_insert_and_equal_answers(
    connect: Callable[[], Engine], key: str | None, proof: Callable[[int, int], int]
) -> None:
    """With a key that must be new, whoever comes second must not hear that it is taken."""
    engines = [connect() for _ in range(4)]
    for engine in engines:
        engine.status()
    rounds = proof(10, 200)
    for n in range(rounds):
        specs = [command(f"{n}"), command(key=f"{key}{n}" if key else None)]
        answers = fine(
            together(*(lambda engine=engine, s=specs, n=n: engine.enqueue(s, request=f"r{n}") for engine in engines))
        )
        assert all(answer == answers[0] for answer in answers), answers
    assert jobs(engines[0]) == 2 * rounds


def test_one_engine_that_is_asked_by_several_threads_writes_once(engine: Engine) -> None:
    answers = fine(together(*[lambda: engine.enqueue([command()], request="r")] * 4))
    assert (all(answer == answers[0] for answer in answers), jobs(engine)) == (True, 1)


# ── registrations ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pool_that_registers_again_with_its_ticket_is_the_same_pool(engine: Engine, clock: FakeClock) -> None:
    first, again = (engine.register(pool_info(ticket="t")).pool for _ in range(2))
    assert first == again
    assert [pool.id for pool in engine.pools()] == [first]
    assert len(engine.pool_events()) == 1
    others = {engine.register(pool_info(ticket=ticket)).pool for ticket in ("u", None, None)}
    assert len(others | {first}) == 4


def test_a_pool_that_was_given_up_and_comes_with_its_ticket_is_a_new_one(engine: Engine, clock: FakeClock) -> None:
    first = engine.register(pool_info(ticket="t")).pool
    engine.reap(first, 0)
    second, again = (engine.register(pool_info(ticket="t")).pool for _ in range(2))
    assert second == again != first
    clock.advance(3601)
    assert engine.register(pool_info(ticket="t")).pool != second  # after an hour nobody remembers
