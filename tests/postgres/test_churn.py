"""Claims stay quick while somebody's long transaction keeps the server from forgetting what is dead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import psycopg
import pytest

from covey.engine.engine import Engine
from covey.store import ready
from covey.store.postgres import dead_entries
from covey.store.ready import Lane
from covey.testing import until
from tests.kit import HandPool, command, python_task
from tests.kit.faults import failpoint
from tests.kit.hand_pool import report
from tests.kit.postgres import Given, Server


def churn(engine: Engine, pool: HandPool, jobs: int, queues: int = 1) -> list[float]:
    """So many jobs come and go; how long the turns took."""
    took: list[float] = []
    for _ in range(0, jobs, 1000):
        engine.enqueue([command(queue=f"q{n % queues}") for n in range(1000)])
        claims = pool.claim(250)
        while claims:
            began = time.perf_counter()
            claims = pool.turn(*(report(claim, "success") for claim in claims), want=250).claims
            took.append(time.perf_counter() - began)
    return took


def p95(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.95)]


@contextmanager
def long_transaction(server: Server | Given) -> Iterator[None]:
    """Somebody's, meanwhile: nothing that dies is forgotten."""
    with psycopg.connect(server.admin_url) as holder:
        holder.execute("begin isolation level repeatable read")
        holder.execute("select count(*) from pg_class")
        yield
        holder.rollback()


@pytest.mark.full
@pytest.mark.parametrize("queues", [1, 3])
def test_a_held_snapshot_and_much_churn_leave_claims_quick(engine: Engine, server: Server | Given, queues: int) -> None:
    pool = HandPool(engine)
    churn(engine, pool, 2000, queues)
    quiet = p95(churn(engine, pool, 5000, queues))
    with long_transaction(server):
        churn(engine, pool, 195_000, queues)
        held = p95(churn(engine, pool, 5000, queues))
    assert held <= 10 * quiet, f"{held * 1e3:.0f} ms beside {quiet * 1e3:.0f} ms"
    until(lambda: median(churn(engine, pool, 2000, queues)) <= 2 * quiet, 60, "as quick as before")


def passed(engine: Engine) -> int:
    """Entries of the index of pending jobs that were passed so far."""
    engine.store.raw("select pg_stat_force_next_flush()")
    return int(engine.store.raw("select pg_stat_get_tuples_returned('{jobs_ready}'::regclass)")[0][0])


@pytest.mark.parametrize("queues", [1, 3])
def test_with_a_held_snapshot_claims_do_not_pass_what_is_dead(
    engine: Engine, server: Server | Given, queues: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, counted instead of timed. What is slow and what is long is scaled down and lasts for the whole test."""
    lasts = {"LASTS_S": 600.0, "SHARE": 1_000_000, "SHORTCUT_S": 600.0}
    for name, value in {"SLOW_S": -1.0, "JOB_S": 0.0, "LONG": 500, **lasts}.items():
        monkeypatch.setattr(dead_entries, name, value)
    monkeypatch.setattr(ready, "LASTS_S", 600.0)
    pool, dead = HandPool(engine), 5000
    with long_transaction(server):
        churn(engine, pool, dead, queues)
        before = passed(engine)
        turns = len(churn(engine, pool, 2000, queues))
        assert (passed(engine) - before) / turns < dead


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look counts as slow and every way as long, so that claims go on from the frontier at once."""
    monkeypatch.setattr(dead_entries, "SLOW_S", -1.0)
    monkeypatch.setattr(dead_entries, "JOB_S", 0.0)
    monkeypatch.setattr(dead_entries, "LONG", -(1 << 30))


def test_from_the_frontier_every_job_is_claimed_once_and_in_order(engine: Engine, hasty: None) -> None:
    pool = HandPool(engine)
    seen: list[int] = []
    made: list[int] = []

    def all_seen() -> bool:
        claims = pool.claim(7)
        seen.extend(claim.id for claim in claims)
        pool.turn(*(report(claim, "success") for claim in claims))
        return len(seen) == len(made)

    for _ in range(6):
        made += [each.id for each in engine.enqueue([command() for _ in range(40)])]
        until(all_seen, 20, "all of them; that there is nothing is believed for a moment too")
    assert seen == made


def test_lanes_that_are_slow_together_are_looked_at_one_by_one_so_that_each_has_its_frontier(
    engine: Engine, hasty: None
) -> None:
    """Every job is still claimed once, in the order of all."""
    made = engine.enqueue([command(queue=f"q{n % 3}") for n in range(60)])
    pool = HandPool(engine)
    claimed = [claim.id for _ in range(10) for claim in pool.claim(6)]
    assert claimed == [each.id for each in made]
    assert {queue for (queue, _), each in engine.store._frontiers.items() if each.until} == {"q0", "q1", "q2"}


def test_a_lane_with_a_long_way_is_not_looked_at_together_with_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.enqueue([command(queue=f"q{n % 3}") for n in range(9)])
    pool = HandPool(engine)
    engine.store._frontier(Lane("q1", "command", 1)).until = time.monotonic() + 60
    asked: list[str] = []
    queries = engine.store.dialect.queries
    monkeypatch.setattr(
        engine.store.dialect, "queries", lambda *each: asked.extend(p.get("queue") for _, p in each) or queries(*each)
    )
    assert len(pool.claim(3)) == 3
    assert {queue for queue in asked if queue} == {"q0", "q2"}


def test_that_there_was_nothing_is_not_believed_of_jobs_that_came_later(
    engine: Engine, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow looks are kept for a minute here: who is enqueued meanwhile must not wait that long."""
    monkeypatch.setattr(dead_entries, "SHARE", 1_000_000)
    pool = HandPool(engine)
    for _ in range(5):
        assert pool.claim(5) == []
    for _ in range(3):
        made = [each.id for each in engine.enqueue([command(), command(queue="other"), python_task()])]
        claims = pool.claim(5)
        assert [claim.id for claim in claims] == made
        pool.turn(*(report(claim, "success") for claim in claims), want=5)


def test_what_comes_in_before_the_frontier_waits_for_the_next_whole_look(engine: Engine, hasty: None) -> None:
    pool = HandPool(engine)
    made = [each.id for each in engine.enqueue([command() for _ in range(20)])]
    claims = [pool.claim_one() for _ in range(8)]
    pool.turn(*(report(claim, "success") for claim in claims[1:]))
    pool.turn(report(claims[0], "taken_back"))  # pending again, with the lowest place of all
    (urgent,) = engine.enqueue([command(priority=9)])
    later = until(lambda: pool.claim(30), 5, "the rest of the lane")
    seen = {claim.id for claim in later}
    until(lambda: seen.update(claim.id for claim in pool.claim(30)) or seen >= {made[0], urgent.id}, 5, "both")
    assert seen == {made[0], urgent.id, *made[8:]}


# ── the one-message way ─────────────────────────────────────────────────────────────────────────────────────────────


def statements(engine: Engine, pool: HandPool, looks: int) -> int:
    """How many that many looks of an idle pool took."""
    dialect: Any = engine.store.dialect
    before = dialect.statements
    for _ in range(looks):
        assert pool.claim(5) == []
    return int(dialect.statements - before)


def test_looks_that_a_busy_server_makes_slow_stay_one_statement_each(engine: Engine) -> None:
    """It stands still before each answer, as one does that waits for a processor; nothing is in the way."""
    pool = HandPool(engine)
    pool.beat()
    looks = 3 * dead_entries.SLOW_LOOKS
    with failpoint("store.before_commit", f"sleep:{dead_entries.SLOW_S * 2}"):
        assert statements(engine, pool, looks) == looks


def test_a_busy_server_does_not_send_claims_to_the_frontier_either(engine: Engine) -> None:
    pool = HandPool(engine)
    pool.beat()
    dialect: Any = engine.store.dialect
    queries = dialect.queries

    def slow(*asked: Any) -> Any:
        time.sleep(dead_entries.SLOW_S * 2)
        return queries(*asked)

    dialect.queries = slow
    made = engine.enqueue([command(queue=f"q{n % 3}") for n in range(30)])
    assert [claim.id for _ in range(10) for claim in pool.claim(3)] == [each.id for each in made]
    assert engine.store._apart_until == 0.0
    assert not any(each.until for each in engine.store._frontiers.values())


def test_looks_past_what_the_server_cannot_forget_are_left_to_those_that_have_a_frontier(
    engine: Engine, server: Server | Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_entries, "LONG", 500)
    pool = HandPool(engine)
    pool.beat()
    with long_transaction(server):
        churn(engine, pool, 1000)
        monkeypatch.setattr(dead_entries, "SLOW_S", -1.0)
        monkeypatch.setattr(dead_entries, "JOB_S", 0.0)
        statements(engine, pool, dead_entries.SLOW_LOOKS)
        assert engine.store._way.until > time.monotonic()
        assert statements(engine, pool, 5) > 5

    def goes_on() -> bool:
        engine.enqueue([command()])  # the server looks anew at what it may forget once somebody has written
        pool.succeed(pool.claim_one())
        return statements(engine, pool, 5) == 5

    monkeypatch.setattr(dead_entries, "SHORTCUT_S", 0.1)
    engine.store._way.until = 0.0
    until(goes_on, 60, "as quick as before")
    assert engine.store._way.is_short(time.monotonic())


def test_looks_past_many_dead_entries_stay_one_statement_each_while_they_are_quick(
    engine: Engine, server: Server | Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_entries, "LONG", 500)
    monkeypatch.setattr(dead_entries, "SLOW_S", 60.0)  # so that they are, on any machine
    pool = HandPool(engine)
    pool.beat()
    with long_transaction(server):
        churn(engine, pool, 1000)
        assert statements(engine, pool, 3 * dead_entries.SLOW_LOOKS) == 3 * dead_entries.SLOW_LOOKS
        assert not engine.store._way.is_short(time.monotonic())  # it was long


def test_where_the_server_does_not_count_slow_looks_are_left_to_those_that_have_a_frontier(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells them from those of a busy server."""
    pool = HandPool(engine)
    pool.beat()
    engine.store.raw("select set_config('track_counts', 'off', false)")
    try:
        monkeypatch.setattr(dead_entries, "SLOW_S", 60.0)
        assert statements(engine, pool, 5) == 5
        assert not engine.store._way.is_short(time.monotonic())
        monkeypatch.setattr(dead_entries, "SLOW_S", -1.0)
        statements(engine, pool, dead_entries.SLOW_LOOKS)
        assert engine.store._way.until > time.monotonic()
        assert statements(engine, pool, 5) > 5
    finally:
        engine.store.raw("select set_config('track_counts', 'on', false)")
