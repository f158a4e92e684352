"""What a job costs, counted instead of timed: statements in the driver, instructions under callgrind.

Counts do not depend on what else the machine does, so that a small regression is seen. The last ones that were found
good are in costs.json; `python -m benchmarks.costs --record` writes it anew. A test compares the statements.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import apsw
from tests.kit import HandPool, child, python_task

from covey.core.model import Report
from covey.core.turn import Capacity
from covey.engine.engine import Engine
from covey.open import open_engine
from covey.worker import messages

from .report import Figure, Remark

RECORD = Path(__file__).with_name("costs.json")
NAME = "costs"
BATCH = 100  # jobs of one turn
JOBS = 200  # that a count is taken over
WAITING = 2000  # where queues are full: as many for every count, so that filling them does not count
START = 1_800_000_000_000_000

Work = Callable[[Engine, HandPool, int], None]


# ── the work ────────────────────────────────────────────────────────────────────────────────────────────────────────


def enqueue_one(engine: Engine, pool: HandPool, jobs: int) -> None:
    for _ in range(jobs):
        engine.enqueue([python_task("t", "x" * 100)])


def enqueue_many(engine: Engine, pool: HandPool, jobs: int) -> None:
    for _ in range(jobs // BATCH):
        engine.enqueue([python_task("t", "x" * 100) for _ in range(BATCH)])


def drain(engine: Engine, pool: HandPool, jobs: int) -> None:
    """Turns that report what the one before has claimed. What is drained was enqueued before."""
    reports: list[Report] = []
    for _ in range(jobs // BATCH + 1):
        reply = pool.turn(*reports, want=BATCH)
        reports = [Report(each.id, each.fence, "success", START, START, "w1") for each in reply.claims]


def drain_queues(engine: Engine, pool: HandPool, jobs: int) -> None:
    """The same from many queues. The places for coroutines stay free: nothing may be read in vain for them."""
    reports: list[Report] = []
    for _ in range(jobs // BATCH + 1):
        want = Capacity(None, {"sync": BATCH, "async": 4 * BATCH}, 5 * BATCH, bound=BATCH)
        reply = pool.turn(*reports, wants=[want])
        reports = [Report(each.id, each.fence, "success", START, START, "w1") for each in reply.claims]


def look(engine: Engine, pool: HandPool, jobs: int) -> None:
    """Turns of a pool for which there is nothing."""
    for _ in range(jobs):
        pool.claim(4)


def tree(engine: Engine, pool: HandPool, jobs: int) -> None:
    """Parents with nine children each, all of them run."""
    for _ in range(jobs // 10):
        engine.enqueue([python_task("parent")])
        parent = pool.claim_one()
        pool.turn(Report(parent.id, parent.fence, "success", spawned=[child() for _ in range(9)], joins=False))
        claims = pool.claim(9)
        pool.turn(*(Report(each.id, each.fence, "success") for each in claims))


def frames(engine: Engine, pool: HandPool, jobs: int) -> None:
    """A job on its way to a worker, and its report on the way back."""
    engine.enqueue([python_task("t", "x" * 100)])
    claim = pool.claim_one()
    for serial in range(jobs):
        messages.decode_job(messages.encode(messages.RunJob(serial, False, claim)))
        report = Report(claim.id, claim.fence, "success", START, START, "w1")
        messages.unframe(bytearray(messages.frame(messages.JobDone(serial, report))))


QUEUES = {drain: 1, drain_queues: 20}  # that are full before the work begins
WORKS: dict[str, Work] = {
    "enqueue, one by one": enqueue_one,
    "enqueue, 100 at once": enqueue_many,
    "drain, 100 a turn": drain,
    "drain of 20 queues": drain_queues,
    "look, nothing there": look,
    "trees of ten": tree,
    "frames to a worker and back": frames,
}


@contextmanager
def ready(url: str, work: Work, jobs: int) -> Iterator[tuple[Engine, HandPool]]:
    """A queue with a pool, duties done, and what the work needs."""
    engine = open_engine(url)
    engine.clock = lambda: START
    engine.rng = Random(1)
    try:
        pool = HandPool(engine)
        pool.beat()
        engine.enqueue([python_task("t")])
        pool.succeed(pool.claim_one())
        if queues := QUEUES.get(work, 0):
            engine.enqueue([python_task("t", "x" * 100, queue=f"q{n % queues}") for n in range(WAITING)])
        yield engine, pool
    finally:
        engine.close()


# ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────────


def statements(url: str, name: str) -> float:
    """For one job, with the transaction's own, counted in the driver."""
    work = WORKS[name]
    with ready(url, work, JOBS) as (engine, pool):
        dialect: Any = engine.store.dialect
        if dialect.name == "postgres":
            before = dialect.statements
            work(engine, pool, JOBS)
            return round((dialect.statements - before) / JOBS, 3)
        seen: list[int] = []
        dialect._db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: seen.append(1))
        work(engine, pool, JOBS)
        return round(len(seen) / JOBS, 3)


# ── instructions ────────────────────────────────────────────────────────────────────────────────────────────────────


def instructions(name: str) -> int:
    """For one job on SQLite: the difference of two runs, so that the start of the program does not count."""
    return (_collected(name, 3 * BATCH) - _collected(name, BATCH)) // (2 * BATCH)


def _collected(name: str, jobs: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "benchmarks.costs", "--work", name, str(jobs)],
        capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONHASHSEED": "0"},
    )  # fmt: skip
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"callgrind counted nothing of {name!r}: {done.stderr[-500:]}")
    return int(found[1])


def _work(name: str, jobs: int) -> None:
    with ready("memory:costs", WORKS[name], jobs) as (engine, pool):
        WORKS[name](engine, pool, jobs)


# ── beside what was recorded ────────────────────────────────────────────────────────────────────────────────────────


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def run(quick: bool) -> Iterator[Figure | Remark]:
    known = recorded()
    for name in WORKS:
        with tempfile.TemporaryDirectory() as place:
            now = statements(f"{place}/queue.db", name)
        was = known["statements"]["sqlite"][name]
        yield Figure(NAME, f"statements, {name}", now, was, "a job", "recorded", ("≤", 1.0), given=_share(now, was))
    if quick:
        return
    if shutil.which("valgrind") is None:
        yield Remark(NAME, "instructions were not counted: there is no valgrind")
        return
    for name in WORKS:
        count, was = instructions(name), known["instructions"][name]
        yield Figure(NAME, f"instructions, {name}", count, was, "a job", "recorded", ("≤", 1.05))


def _share(now: float, was: float) -> float:
    return now / was if was else 1.0 + now


def _record(postgres: Callable[[str], str]) -> None:
    """What is so now is what later changes are compared with."""
    found: dict[str, Any] = {
        "versions": {"python": sys.version.split()[0], "apsw": apsw.apsw_version()},
        "statements": {"sqlite": {}, "postgres": {}},
        "instructions": {},
    }
    for name in WORKS:
        with tempfile.TemporaryDirectory() as place:
            found["statements"]["sqlite"][name] = statements(f"{place}/queue.db", name)
        schema = f"costs_{len(found['instructions'])}"
        found["statements"]["postgres"][name] = statements(postgres(schema), name)
        found["instructions"][name] = instructions(name)
        print(name, found["statements"]["sqlite"][name], found["instructions"][name], flush=True)
    RECORD.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    match sys.argv[1:]:
        case ["--work", name, jobs]:
            _work(name, int(jobs))
        case ["--record"]:
            from tests.kit.postgres import Server

            server = Server()
            try:
                _record(server.url)
            finally:
                server.close()
        case _:
            raise SystemExit("python -m benchmarks.costs --record; to compare: python -m benchmarks costs")


if __name__ == "__main__":
    main()
