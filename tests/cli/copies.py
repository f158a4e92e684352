"""Queues for the tests of `covey db copy`: one with everything in it, and what must be the same in two."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from covey.core.model import ENDED, Output
from covey.core.turn import Caller
from covey.engine import db_copy
from covey.engine.engine import Engine
from covey.open import open_dialect, open_engine
from covey.store.store import Store
from covey.store.tables import TABLES, Rows
from covey.testing import FakeClock
from tests.kit import HandPool, after, child, command, python_task

Places = Callable[[str], str]
DIRECTIONS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]
BINARY = bytes(range(256)) * 40

by_direction = pytest.mark.parametrize("direction", DIRECTIONS, ids="-to-".join)
both_ways = pytest.mark.parametrize("direction", DIRECTIONS[:2], ids="-to-".join)


@contextlib.contextmanager
def opened(url: str, clock: FakeClock | None = None) -> Iterator[Engine]:
    """The queue with a clock that stands still, so that two of them can be compared."""
    open_engine(url).close()
    engine = Engine(Store(open_dialect(url)), clock=clock or FakeClock(), rng=Random(0))
    try:
        yield engine
    finally:
        engine.close()


def fill(engine: Engine, plain: int = 3) -> None:
    """Jobs of every kind, in every state that a queue without pools can have."""
    pool = HandPool(engine)
    engine.set_setting("max_attempts", "7")
    engine.create_token("theirs", "worker", queues=["row"], expires_s=60)
    engine.create_token("ours", "admin")
    engine.revoke_token("ours")
    engine.set_queue("row", serial=True)
    engine.set_queue("Two.at@once", concurrency=2, max_depth=3)
    engine.pause("later")
    engine.enqueue([command(": waits", queue="later"), command(": in an hour", delay_s=3600)])
    caller = Caller(host="far", boot="another:1", pid=1, ticks=1, lease_s=30.0)
    engine.enqueue([command(": somebody waits for it", queue="later")], caller=caller)
    engine.enqueue([command(f": row {n}", queue="row", key=f"row-{n}") for n in range(3)])
    serial = pool.claim(1, places={"command": 1})
    assert [claim.queue for claim in serial] == ["row"]
    pool.spawn(serial[0], child(": below"), child(": below too"))

    def run(spec: Any, *spawned: Any, **said: Any) -> int:
        (made,) = engine.enqueue([spec])
        (mine,) = [claim for claim in pool.claim(50) if claim.id == made.id or _back(pool, claim)]
        pool.report(mine, said.pop("outcome", "success"), spawned=list(spawned), **said)
        return made.id

    tree = run(
        command(": tree", priority=9, joins=True, child_mode="serial", on_error="collect"),
        *(child(f": step {n}", key=f"step-{n}") for n in range(4)),
        after(": uncle"),
        after(": whatever happens", when="always"),
    )
    (step,) = pool.claim(1, places={"command": 1})
    assert engine.job(step.id).parent_id == tree
    pool.succeed(step, result='{"größe": "日本"}')
    run(
        command("dead", priority=9, max_attempts=1, labels={"wo": "Zürich"}, batch="b"),
        outcome="failure",
        error="kaputt: ÄÖÜ 🦆",
        output=Output(BINARY, BINARY[::-1], 7, 9),
        exit_code=3,
    )
    run(command(": tries again", priority=9), outcome="failure", error="once")
    run(python_task("tests.tasks.f", 1, "zwölf", priority=9, kind="async", key="fünf"), result="[1, 2.5, null]")
    engine.enqueue([command(f": plain {n}", unique_key=f"one of {n}", priority=n % 3) for n in range(plain)])
    ended = [made.id for made in engine.enqueue([command(": no more"), command(": very last")])]
    engine.cancel(ended)
    engine.remove(ended[-1:])  # its number must not be given again
    engine.leave(pool.id)


def _back(pool: HandPool, claim: Any) -> bool:
    pool.report(claim, "taken_back")
    return False


def contents(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    rows = Rows(engine.store)
    columns = {table: sorted(rows.columns(table)) for table in TABLES}
    return {table.name: [row for page in rows.pages(table, columns[table], None) for row in page] for table in TABLES}


def ids(engine: Engine) -> set[int]:
    return {row[0] for row in engine.store.raw("select id from {jobs}")}


def work_off(engine: Engine, clock: FakeClock) -> list[tuple[int, int, str]]:
    """Every run until nothing is left, in order."""
    pool, runs = HandPool(engine), []
    engine.resume("later")
    for _ in range(1000):
        claims = pool.claim(1)
        for claim in claims:
            runs.append((claim.id, claim.fence, claim.phase))
            pool.succeed(claim)
        if not claims:
            if all(state in ENDED or not count for state, count in engine.status().counts.items()):
                return runs
            clock.advance(3600)
    raise AssertionError(engine.status().counts)


def move(source: Engine, target: Engine, page: int = 4) -> None:
    db_copy.begin(source.store, target.store, token=1, now=0)
    for _ in db_copy.copy(source.store, target.store, page=page):
        pass
    db_copy.compare(source.store, target.store)
    db_copy.finish(source.store, target.store, token=1)
