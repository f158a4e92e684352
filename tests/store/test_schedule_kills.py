"""Pools killed at every point of a fire: each tick has exactly one job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import apsw
import pytest

from covey.core.schedule_views import ScheduleBody
from covey.engine.engine import Engine
from covey.engine.ticks import Ticks
from covey.errors import CoveyError
from covey.open import open_engine
from tests.kit import HandPool, check_queue
from tests.kit.faults import Child

DOOMED = """
import sys
from covey import env
from covey.core import schedules
from covey.engine import ticks
from covey.open import open_engine
from tests.kit import HandPool
plan = schedules.plan
schedules.plan = lambda *given, **named: plan(*given, **named, slice=3)  # many small turns, many chances to be killed
ticks.PAGE_S = 0
engine, point, turns = open_engine(sys.argv[1]), sys.argv[2], int(sys.argv[3])
pool = HandPool(engine)
print("ready", flush=True)
while engine.store.instants().fire_at is not None and engine.store.instants().fire_at <= engine.clock():
    if turns == 0:
        env.arm(point, "kill")
    turns -= 1
    pool.turn(want=2)
"""
POINTS = [
    "schedule.before_tick",
    "schedule.after_job",
    "schedule.before_commit",
    "turn.before_commit",
    "store.before_commit",
    "store.after_commit",
    "turn.after_commit",
]


def missed(engine: Engine, count: int, ticks: int) -> dict[str, list[str]]:
    """Schedules with that many ticks of today, all to be caught up; none of them is decided."""
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=ticks + 120)
    instants = [(start + timedelta(seconds=n)).isoformat() for n in range(ticks)]
    first = int(start.timestamp()) * 1_000_000
    for n in range(count):
        body = ScheduleBody(
            job={"command": "true"},
            at=[*instants, "2099-01-01T00:00:00Z"],
            catch_up=f"all:{ticks + 1}",
            overlap="allow",
        )
        engine.put_schedule(f"s{n}", body)
    with engine.store.transaction():
        engine.store.raw("update {schedules} set next_at = :at, fire_at = :at", at=first)
    named = [at.replace("+00:00", ".000Z") for at in instants]
    return {f"s{n}": named for n in range(count)}


def audit(engine: Engine, expected: dict[str, list[str]]) -> list[str]:
    """Every broken promise in one line each."""
    problems = []
    told = Counter(
        (env["COVEY_SCHEDULE"], env["COVEY_TICK"])
        for (args,) in engine.store.raw("select args from {payloads}")
        if "COVEY_TICK" in (env := json.loads(args)["env"])
    )
    for name, ticks in expected.items():
        rows = {tick.tick: tick for tick in engine.ticks(name, 10_000)}
        for tick in ticks:
            if tick not in rows or rows[tick].decision != "fired":
                problems.append(f"{name}: {tick} was not decided")
            if told[name, tick] != 1:
                problems.append(f"{name}: {tick} has {told[name, tick]} jobs")
    return problems + check_queue(engine)


def due(engine: Engine) -> bool:
    fire_at = engine.store.instants().fire_at
    return fire_at is not None and fire_at <= engine.clock()


@pytest.mark.parametrize("store", ["file", "postgres"])
def test_pools_that_are_killed_at_random_give_each_tick_one_job(
    store: str, path: str, request: pytest.FixtureRequest, proof: Callable[[int, int], int]
) -> None:
    url = path if store == "file" else request.getfixturevalue("postgres_queue")()
    dice = Random(20)
    engine = open_engine(url)
    try:
        expected = missed(engine, proof(4, 20), proof(12, 50))
        killed = 0
        while due(engine):
            doomed = [Child(DOOMED, url, dice.choice(POINTS), str(dice.randrange(3))) for _ in range(proof(2, 5))]
            killed += sum(each.end()[0] == -9 for each in doomed)
        assert killed >= proof(2, 10)
        assert audit(engine, expected) == []
    finally:
        engine.close()


# ── planted ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def decided(engine: Engine) -> dict[str, list[str]]:
    expected = missed(engine, 2, 3)
    pool = HandPool(engine)
    while due(engine):
        pool.turn()
    return expected


def test_the_audit_finds_a_job_that_is_missing_and_one_that_is_there_twice(
    path: str, opened: Callable[[str], Engine]
) -> None:
    engine = opened(path)
    expected = decided(engine)
    assert audit(engine, expected) == []
    jobs = [row[0] for row in engine.store.raw("select id from {jobs} order by id")]
    with engine.store.transaction():
        engine.store.raw("delete from {payloads} where job_id = :id", id=jobs[0])
        twin = "update {payloads} set args = (select args from {payloads} where job_id = :one) where job_id = :other"
        engine.store.raw(twin, one=jobs[1], other=jobs[2])
    found = {problem.split(" has ")[1] for problem in audit(engine, expected) if " has " in problem}
    assert found == {"0 jobs", "2 jobs"}


def test_a_tick_without_its_job_is_refused_by_the_tables_and_nothing_of_it_stays(
    path: str, opened: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(path)
    expected = missed(engine, 1, 3)
    pool = HandPool(engine)

    def nothing(*_: Any) -> dict[Any, Any]:
        return {}

    with monkeypatch.context() as planted:
        planted.setattr(Ticks, "add_jobs", nothing)
        for _ in range(2):
            with pytest.raises((CoveyError, Exception), match=r"CHECK|constraint"):
                pool.turn()
    assert engine.ticks("s0") == []
    assert due(engine)
    with engine.store.transaction():
        engine.store.raw("update {schedules} set errors = 0")
    engine._turns._ticks._suspects.clear()
    while due(engine):
        pool.turn()
    assert audit(engine, expected) == []


def test_what_the_tables_refuse_hinders_the_others_for_two_turns_at_most(
    path: str, opened: Callable[[str], Engine]
) -> None:
    engine = opened(path)
    expected = missed(engine, 3, 2)
    ids = dict(engine.store.raw("select name, id from {schedules}"))
    with engine.store.transaction():
        engine.store.raw(
            f"create trigger stubborn before insert on {{ticks}} when new.schedule_id = {ids['s0']} "
            "begin select raise(abort, 'planted'); end"
        )
    pool, failed = HandPool(engine), 0
    while due(engine):
        try:
            pool.turn()
        except apsw.ConstraintError:
            failed += 1
        assert failed <= 6
    assert audit(engine, {name: expected[name] for name in ("s1", "s2")}) == []
    told = [event.text or "" for event in engine.events() if event.kind == "schedule_broken"]
    assert any("planted" in text for text in told)
