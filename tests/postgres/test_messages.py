"""How often a pool and the server wait for each other: each message is a way there and back."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from covey.engine.engine import Engine
from covey.store.session import Session, _interposed
from covey.testing import HandPool, command, python_task
from covey.testing.hand import report


@pytest.fixture
def pool(engine: Engine) -> HandPool:
    pool = HandPool(engine)
    pool.beat()  # duties are done
    return pool


@pytest.fixture
def messages(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything that is sent from now on."""
    sent: list[str] = []
    send = engine.store.dialect._run_all  # type: ignore[attr-defined]

    def noted(text: str, params: Any) -> Any:
        sent.append(text)
        return send(text, params)

    monkeypatch.setattr(engine.store.dialect, "_run_all", noted)
    return sent


def test_an_idle_pool_gets_its_job_in_one_message(engine: Engine, pool: HandPool, messages: list[str]) -> None:
    engine.enqueue([command(), command()])
    messages.clear()
    assert len(pool.claim(2)) == 2
    assert len(messages) == 1


def test_a_pool_of_named_queues_too(engine: Engine, messages: list[str]) -> None:
    pool = HandPool(engine, queues=("default", "other"))
    pool.beat()
    engine.enqueue([command(queue="elsewhere"), command(queue="other")])
    messages.clear()
    assert [claim.queue for claim in pool.claim(5)] == ["other"]
    assert len(messages) == 1


def test_to_find_nothing_takes_one_message_and_writes_nothing(
    engine: Engine, pool: HandPool, messages: list[str]
) -> None:
    before = engine.store.raw("select xmin::text, xmax::text, beat from {pools}")
    messages.clear()
    assert pool.claim(5) == []
    assert len(messages) == 1
    assert engine.store.raw("select xmin::text, xmax::text, beat from {pools}") == before


def test_a_claim_in_one_message_shows_the_beat_and_is_numbered(engine: Engine, pool: HandPool) -> None:
    before = engine.store.raw("select beat, turn_no from {pools}")[0]
    engine.enqueue([command()])
    pool.claim_one()
    assert engine.store.raw("select beat, turn_no from {pools}")[0] == (before[0] + 1, before[1] + 1)


def test_each_kind_has_its_own_number_of_places(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([python_task() for _ in range(5)])
    assert len(pool.claim(5, places={"command": 5, "sync": 2})) == 2
    assert len(pool.claim(5, bound=1)) == 1


def test_two_lanes_are_merged_by_priority(engine: Engine, pool: HandPool) -> None:
    """Where there is something to decide, it is not decided by the server."""
    low, high = engine.enqueue([command(priority=1), python_task(priority=9)])
    assert [claim.id for claim in pool.claim(1)] == [high.id]
    assert [claim.id for claim in pool.claim(1)] == [low.id]


def test_a_turn_with_reports_takes_four(engine: Engine, pool: HandPool, messages: list[str]) -> None:
    engine.enqueue([command(), command()])
    first = pool.claim_one()
    messages.clear()
    assert len(pool.turn(report(first, "success"), want=1).claims) == 1
    assert len(messages) <= 4  # who we are and where work waits; the reports; the claims; the commit


def test_work_is_done_while_the_server_works(engine: Engine) -> None:
    """Once a message has been sent, before its answer is there."""
    states: list[int] = []
    dialect: Any = engine.store.dialect

    def work() -> bool:
        states.append(dialect._db.pgconn.transaction_status)
        return len(states) < 3

    assert dialect.while_waiting(work)
    engine.store.raw("select pg_sleep(0.05)::text")
    assert states == [TransactionStatus.ACTIVE] * 3  # until there is nothing left to do
    pieces: list[float] = []
    dialect.while_waiting(lambda: not pieces.append(time.monotonic()))
    engine.store.raw("select pg_sleep(0.05)::text")
    assert 0.04 < pieces[-1] - pieces[0] < 5  # or until the answer is there


def test_a_new_session_works_meanwhile_too(engine: Engine) -> None:
    done: list[int] = []
    dialect: Any = engine.store.dialect
    dialect.while_waiting(lambda: bool(done.append(1)))
    dialect._db.close()
    engine.store.raw("select 1")
    done.clear()
    engine.store.raw("select 1")
    assert done


def test_steps_and_their_answers_pass_unchanged() -> None:
    from psycopg.waiting import WAIT_R, WAIT_RW

    given: list[object] = []

    def steps() -> Any:
        given.append((yield WAIT_RW))
        given.append((yield WAIT_R))
        given.append((yield WAIT_R))
        return "rows"

    worked: list[list[object]] = []
    with socket.socket() as quiet:
        passed = _interposed(steps(), quiet.fileno(), lambda: bool(worked.append(list(given))))
    assert next(passed) == WAIT_RW
    assert passed.send("a") == WAIT_R
    assert worked == [["a"]]
    assert passed.send("b") == WAIT_R
    with pytest.raises(StopIteration) as end:
        passed.send("c")
    assert end.value.value == "rows"
    assert given == ["a", "b", "c"]
    assert len(worked) == 1
    assert Session.meanwhile is None
