"""PostgreSQL: drain, pick-up, bulk enqueue and statements per job.

The server is the run's own, with its defaults (fsync and synchronous_commit on); pool, workers, clients and peers share
the machine's cores with it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from covey.compose import open_engine
from covey.testing.postgres import Server

from . import contest, contestants, ground, tasks
from .contestants import PEERS
from .environments import Missing
from .report import Figure, Remark
from .stores import opened
from .timing import alternate, median, percentile, ratio_of_pairs

NAME = "postgres"
PEER_S = 20.0  # no drain of a peer is watched for longer

READY = """select id from covey.jobs where state = 'pending' and queue = 'default' and kind = 'sync'
order by priority desc, seq, id limit %s for update skip locked"""
CLAIM = """with taken as (
    update covey.jobs set state = 'processing', pool = 1, fence = fence + 1, attempts = attempts + 1,
                          claimed_at = %(now)s, updated_at = %(now)s
    where id = any(%(ids)s) returning id, fence, task, attempts)
select t.*, (select args from covey.payloads where job_id = t.id) from taken t"""
FINISH = """update covey.jobs set state = 'completed', pool = null, worker = 'w1', started_at = %(now)s,
                       finished_at = %(now)s, updated_at = %(now)s
where id = any(%(ids)s) and state = 'processing'"""


def run(quick: bool) -> Iterator[Figure | Remark]:
    jobs, rounds = (10_000, 3) if quick else (30_000, 3)
    statements: list[float] = []

    def ours() -> float:
        with fresh() as server:
            rate, sent = covey(server, jobs)
            statements.append(sent / jobs)
            return rate

    def loop() -> float:
        with fresh() as server:
            return raw_loop(server, jobs)

    mine, theirs = alternate(rounds, ours, loop)
    yield Figure(
        NAME, f"drain, {jobs:,} no-op tasks, 2 workers", median(mine), median(theirs), "jobs/s",
        "raw psycopg loop, 100 a transaction", ("≥", 0.35), given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield Figure(
        NAME,
        "statements a job, the same drain",
        median(statements),
        1,
        "",
        "one",
        ("≤", 0.1),
        note="counted in the driver",
    )
    yield from _bulk(100_000 if not quick else 20_000)
    yield from _beside_peers(quick, jobs)


@contextlib.contextmanager
def fresh() -> Iterator[Server]:
    """A server with nothing in it."""
    server = Server(fast=False)
    os.environ["XDG_STATE_HOME"] = f"{server.directory}"
    try:
        yield server
    finally:
        tasks.app.close()
        server.close()


def fill(server: Server, jobs: int) -> str:
    url = server.url()
    ground.use(url)
    for first in range(0, jobs, 10_000):
        tasks.noop.enqueue_many(tasks.noop.call(n, tasks.TEXT) for n in range(first, min(jobs, first + 10_000)))
    return url


# ── drain ───────────────────────────────────────────────────────────────────────────────────────────────────────────

COUNTED = """
import sys
from covey.cli.main import main
from covey.engine.turns import Turns

path, leave = sys.argv[1], Turns.leave

def told(self, pool):
    with open(path, "w") as file:
        file.write(str(self.store.dialect.statements))
    return leave(self, pool)

Turns.leave = told
sys.argv = ["covey", *sys.argv[2:]]
main()
"""


def covey(server: Server, jobs: int) -> tuple[float, int]:
    """Jobs a second by the rows (first start to last end), and the statements that the pool has sent."""
    url = fill(server, jobs)
    counted = os.path.join(server.directory, "statements")
    words = ["worker", "start", "--count", "2", "--queue", "default", "--app", "benchmarks.tasks:app", "--drain"]
    subprocess.run(
        [sys.executable, "-c", COUNTED, counted, *words, "--quiet"],
        cwd=ground.ROOT, env=ground.environ(COVEY_DB=url), timeout=300, check=True,
    )  # fmt: skip
    with psycopg.connect(server.admin_url) as db:
        found = "select count(*), min(started_at), max(finished_at) from covey.jobs where state = 'completed'"
        count, first, last = db.execute(found).fetchone() or (0, 0, 0)
    if count != jobs:
        raise RuntimeError(f"{count} of {jobs} jobs completed")
    return jobs / (last - first) * 1e6, int(Path(counted).read_text())


def raw_loop(server: Server, jobs: int, batch: int = 100) -> float:
    """What psycopg can do with these tables: each transaction finishes one batch and claims the next."""
    fill(server, jobs)
    done, held = 0, []
    with psycopg.connect(server.admin_url) as db:
        db.execute("set enable_seqscan = off")
        db.commit()
        began = time.monotonic()
        while True:
            now = time.time_ns() // 1000
            if held:
                db.execute(FINISH, {"ids": held, "now": now})
                done += len(held)
            ids = [row[0] for row in db.execute(READY, (batch,))]
            held = [row[0] for row in db.execute(CLAIM, {"ids": ids, "now": now})] if ids else []
            db.commit()
            if not held:
                break
        took = time.monotonic() - began
    assert done == jobs
    return jobs / took


# ── bulk enqueue ────────────────────────────────────────────────────────────────────────────────────────────────────


def _bulk(jobs: int) -> Iterator[Figure]:
    with fresh() as server:
        url = fill(server, 1)
        engine = open_engine(url)
        args = tasks.noop.call(1, tasks.TEXT).args
        calls = [tasks.noop.call(n, tasks.TEXT) for n in range(jobs)]

        def ours() -> float:
            began = time.monotonic()
            tasks.noop.enqueue_many(calls)
            return jobs / (time.monotonic() - began)

        def raw() -> float:
            with psycopg.connect(server.admin_url) as db:
                sequence = "select nextval('covey.jobs_id_seq') from generate_series(1, %s)"
                ids = [row[0] for row in db.execute(sequence, (jobs,))]
                now = time.time_ns() // 1000
                columns = "id, queue, kind, task, state, seq, max_attempts, created_at, updated_at, root_id"
                began = time.monotonic()
                with db.cursor().copy(f"copy covey.jobs ({columns}) from stdin".encode()) as copy:
                    for id in ids:
                        copy.write_row((id, "other", "sync", tasks.noop.name, "pending", id, 3, now, now, id))
                with db.cursor().copy(b"copy covey.payloads (job_id, args) from stdin") as copy:
                    for id in ids:
                        copy.write_row((id, args))
                db.commit()
                return jobs / (time.monotonic() - began)

        mine, theirs = alternate(3, ours, raw)
        engine.close()
    yield Figure(
        NAME, f"enqueue_many, {jobs:,} calls", median(mine), median(theirs), "jobs/s", "raw COPY into the same tables",
        ("≥", 0.4), given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip


# ── peers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _beside_peers(quick: bool, jobs: int) -> Iterator[Figure | Remark]:
    there = {}
    for name, entry in PEERS["postgres"].items():
        try:
            there[name] = entry.ready()
        except Missing as problem:
            yield Remark(NAME, f"{name} could not be installed here: {problem}")

    def rate(name: str) -> float:
        with opened("postgres") as store:
            return contest.drain(there[name], store, 2, jobs, PEER_S)[0]

    rates = {name: rate(name) for name in there}
    for name, found in rates.items():
        yield Remark(NAME, f"drain of {name}: {found:,.0f} jobs/s")
    best = max(rates, key=lambda name: rates[name])

    def ours() -> float:
        with fresh() as server:
            return covey(server, jobs)[0]

    mine, theirs = alternate(3, ours, lambda: rate(best))
    yield Figure(
        NAME, "the same drain", median(mine), median(theirs), "jobs/s", f"{best}, 2 processes, the best of the peers",
        ("≥", 1.2), 2, given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield from _pickup(quick, there)


def _pickup(quick: bool, there: dict[str, contest.Contestant]) -> Iterator[Figure | Remark]:
    size = 60 if quick else 200
    seen: dict[str, list[list[float]]] = {name: [] for name in ["covey", *there]}
    for _ in range(3):
        for name, contestant in {"covey": contestants.covey(), **there}.items():
            with opened("postgres") as store:
                seen[name].append(contest.pickups(contestant, store, size))
    for share, need in ((0.5, ("≤", 1.2)), (0.99, ("≤", 1.2))):
        at = {name: median(percentile(block, share) for block in blocks) for name, blocks in seen.items()}
        best = min(there, key=lambda name: at[name])
        told = ", ".join(f"{name} {at[name]:.1f}" for name in there)
        yield Figure(
            NAME, f"pick-up p{share * 100:.0f} of {size}, median of 3", at["covey"], at[best], "ms", f"{best} ({told})",
            need,
        )  # fmt: skip
