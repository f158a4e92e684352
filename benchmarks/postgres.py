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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psycopg
from tests.kit.postgres import Server

from covey.open import open_engine

from . import contest, contestants, ground, tasks
from .contestants import COVEY, PEERS
from .environments import Missing
from .report import Figure, Remark
from .stores import opened
from .timing import alternate, median, percentile, ratio_of_pairs, spread

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
from covey.engine.turn import Turns

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

    rates: dict[str, float] = {}
    for name in there:
        try:
            rates[name] = rate(name)
            yield Remark(NAME, f"drain of {name}: {rates[name]:,.0f} jobs/s")
        except Exception as problem:  # whatever it is: named, not dropped
            yield Remark(NAME, f"drain of {name} failed: {contest.said(problem)}")
    if not rates:
        yield Remark(NAME, "no peer could be measured: there is nothing to compare with")
        return
    best = max(rates, key=lambda name: rates[name])

    def ours() -> float:
        with fresh() as server:
            return covey(server, jobs)[0]

    mine, theirs = alternate(3 if quick else 7, ours, lambda: rate(best))
    yield Figure(
        NAME, "the same drain", median(mine), median(theirs), "jobs/s", f"{best}, 2 processes, the best of the peers",
        ("≥", 1.2), 2, given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield Remark(NAME, f"drain, covey ÷ {best}, pair by pair: {spread(mine, theirs)}")
    yield from _pickup(60 if quick else 600, there)  # the p99 of 200 would be one of the two worst


# ── pick-up ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SHARES = {"p50": 0.5, "p99": 0.99}
BLOCKS = 3
Blocks = dict[str, list[list[float]]]  # by name, Covey's too: milliseconds, block by block


def _pickup(size: int, there: Mapping[str, contest.Contestant]) -> Iterator[Figure | Remark]:
    """All take turns, a block each. Every other round goes backwards, and the best peer's turn is next to Covey's."""
    entered = {COVEY: contestants.covey(), **there}
    seen: Blocks = {name: [] for name in entered}
    order = list(entered)
    for number in range(BLOCKS):
        for name in order[::-1] if number % 2 else list(order):
            try:
                with opened("postgres") as store:
                    seen[name].append(contest.pickups(entered[name], store, size))
            except Exception as problem:
                if name == COVEY:
                    raise
                order.remove(name)
                yield Remark(NAME, f"pick-up of {name} failed: {contest.said(problem)}")
        if number == 0:
            slow = hopeless(seen)
            order = [name for name in sorted(order, key=lambda name: _at(seen[name], 0.5)) if name not in slow]
            order = [COVEY, *(name for name in order if name != COVEY)]
            for name in slow:
                yield Remark(
                    NAME, f"pick-up of {name}: one block, which was more than twice as slow as the best peer's"
                )
    yield from judged(size, seen)


def hopeless(seen: Blocks) -> list[str]:
    """Peers that need not be asked again: both by p50 and by p99 more than twice as slow as the best peer.

    By p50 alone one might be left out whose p99 is the best.
    """
    peers = [name for name, blocks in seen.items() if name != COVEY and blocks]
    best = {share: min((_at(seen[name], share) for name in peers), default=0.0) for share in SHARES.values()}
    return [name for name in peers if all(_at(seen[name], share) > 2 * best[share] for share in SHARES.values())]


def judged(size: int, seen: Blocks) -> Iterator[Figure | Remark]:
    """Covey beside the best peer, by the median of the blocks."""
    peers = [name for name, blocks in seen.items() if name != COVEY and blocks]
    if not peers:
        yield Remark(NAME, "pick-up of no peer could be measured: there is nothing to compare with")
        return
    for title, share in SHARES.items():
        at = {name: _at(seen[name], share) for name in (COVEY, *peers)}
        best = min(peers, key=lambda name: at[name])
        told = ", ".join(f"{name} {at[name]:.1f}" for name in peers)
        yield Figure(
            NAME, f"pick-up {title} of {size}, median of {BLOCKS}", at[COVEY], at[best], "ms", f"{best} ({told})",
            ("≤", 1.2),
        )  # fmt: skip
        ours, theirs = ([percentile(block, share) for block in seen[name]] for name in (COVEY, best))
        if len(ours) == len(theirs):
            yield Remark(NAME, f"pick-up {title}, covey ÷ {best}, block by block: {spread(ours, theirs)}")


def _at(blocks: Sequence[Sequence[float]], share: float) -> float:
    return median(percentile(block, share) for block in blocks)
