"""How often a pool and the server wait for each other: each message is a way there and back."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from covey.core.turn import Held
from covey.engine.engine import Engine
from covey.errors import StoreError, Unknown
from covey.store.postgres.session import Session, _interposed
from covey.testing import until
from tests.kit import HandPool, child, command, python_task
from tests.kit.hand_pool import report


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


def test_many_lanes_are_looked_at_in_one_message(engine: Engine, pool: HandPool, messages: list[str]) -> None:
    """The shortcut finds several lanes and leaves them to the usual way; of that, only the looks are counted."""
    made = engine.enqueue([command(queue=f"q{n % 8}") for n in range(40)])
    messages.clear()
    assert [claim.id for claim in pool.claim(24)] == [each.id for each in made[:24]]
    assert sum("skip locked" in text for text in messages) == 1
    messages.clear()
    assert [claim.id for claim in pool.claim(24)] == [each.id for each in made[24:]]
    assert sum("skip locked" in text for text in messages) == 1


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


def test_plain_successes_in_and_new_claims_out_are_one_message(
    engine: Engine, pool: HandPool, messages: list[str]
) -> None:
    made = engine.enqueue([python_task(), python_task(), python_task()])
    first, second = pool.claim(2)
    messages.clear()
    told = pool.turn(report(first, "success", result="7"), report(second, "success"), want=1)
    assert [claim.id for claim in told.claims] == [made[2].id]
    assert len(messages) == 1
    assert [engine.job(each.id).state for each in made] == ["completed", "completed", "processing"]
    assert [engine.job(each.id).result for each in made] == [7, None, None]


def test_a_beat_takes_four(engine: Engine, pool: HandPool, messages: list[str]) -> None:
    engine.enqueue([command(), command()])
    first = pool.claim_one()
    messages.clear()
    assert len(pool.turn(report(first, "success"), want=1, held=[]).claims) == 1
    assert len(messages) <= 5  # who we are and where work waits; what we hold; the reports; the claims; the commit


def test_a_stale_report_among_good_ones_is_refused_and_they_count(engine: Engine, pool: HandPool) -> None:
    """The one message ends what it may; the rest is told as always, with nothing claimed twice."""
    made = engine.enqueue([command() for _ in range(4)])
    claims = pool.claim(3)
    stale = Held(claims[1].id, claims[1].fence - 1)
    reply = pool.turn(*(report(each, "success") for each in (claims[0], stale, claims[2])), want=1)
    assert reply.refused == [stale]
    assert [claim.id for claim in reply.claims] == [made[3].id]
    states = [engine.job(each.id).state for each in made]
    assert states == ["completed", "processing", "completed", "processing"]
    assert engine.store.raw("select turn_no from {pools}") == [(pool.number,)]


def test_members_of_a_family_are_ended_as_always_and_what_follows_too_for_a_while(
    engine: Engine, pool: HandPool, messages: list[str]
) -> None:
    (parent,) = engine.enqueue([python_task("parent")])
    pool.spawn(pool.claim_one(), child(), child(), joins=False)
    claims = pool.claim(2)
    pool.turn(*(report(each, "success") for each in claims))
    assert engine.job(parent.id).state == "completed"
    engine.enqueue([command(), command()])
    flat = pool.claim_one()
    messages.clear()
    assert len(pool.turn(report(flat, "success"), want=1).claims) == 1
    assert len(messages) > 1


def test_who_waits_for_an_end_hears_of_it(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    ear = engine.store.listen("end")
    try:
        while ear.wait(0.2):
            pass
        pool.succeed(claim)
        until(lambda: ear.wait(0.1), 5, "it is rung")
    finally:
        ear.close()


@pytest.mark.parametrize("rings", [(), ("end",)])
def test_a_message_that_fails_has_done_nothing_and_says_so(engine: Engine, rings: tuple[str, ...]) -> None:
    dialect: Any = engine.store.dialect
    with pytest.raises(StoreError, match="division by zero") as raised:
        dialect.at_once("select 1 / 0, :patience, :durable, :lock", {}, rings=rings)
    assert not isinstance(raised.value, Unknown)
    assert not dialect._is_in_transaction()


def test_a_message_whose_ring_fails_was_committed_but_nobody_knows_what_it_answered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect: Any = engine.store.dialect
    monkeypatch.setattr(dialect, "channel", "x" * 100)  # longer than a channel may be
    asked = "insert into {}config (key, value) values ('x', :patience) returning :durable, :lock"
    with pytest.raises(Unknown):
        dialect.at_once(asked.format(dialect.prefix), {}, rings=("end",))
    assert engine.store.raw("select count(*) from {config} where key = 'x'") == [(1,)]


def test_work_is_done_while_the_server_works(engine: Engine) -> None:
    """Once a message has been sent, before its answer is there."""
    states: list[int] = []
    dialect: Any = engine.store.dialect

    def work() -> float | None:
        states.append(dialect._db.pgconn.transaction_status)
        return 0 if len(states) < 3 else None

    assert dialect.while_waiting(work)
    engine.store.raw("select pg_sleep(0.05)::text")
    assert states == [TransactionStatus.ACTIVE] * 3  # until there is nothing left to do
    pieces: list[float] = []
    dialect.while_waiting(lambda: pieces.append(time.monotonic()) or 0)
    engine.store.raw("select pg_sleep(0.05)::text")
    assert 0.04 < pieces[-1] - pieces[0] < 5  # or until the answer is there
    seldom: list[int] = []
    dialect.while_waiting(lambda: seldom.append(1) or 0.02)
    engine.store.raw("select pg_sleep(0.05)::text")
    assert 2 <= len(seldom) < 10  # with a pause where it asks for one


def test_a_new_session_works_meanwhile_too(engine: Engine) -> None:
    done: list[int] = []
    dialect: Any = engine.store.dialect
    dialect.while_waiting(lambda: done.append(1))
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
        passed = _interposed(steps(), quiet.fileno(), lambda: worked.append(list(given)))
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
