"""Drain: how fast one pool with two workers empties a queue of no-op Python tasks, every commit on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import contest, ground, raw
from .contestants import PEERS
from .environments import Missing
from .report import Figure, Remark
from .stores import Files
from .timing import alternate, median, ratio_of_pairs

NAME = "drain"
PEER_S = 20.0  # no drain of a peer is watched for longer
Side = Callable[[], float]


def run(quick: bool) -> Iterator[Figure | Remark]:
    jobs, rounds = (10_000, 3) if quick else (30_000, 5)
    seen: list[float] = []

    def ours() -> float:
        with ground.scratch() as place:
            rows, wall = covey(place, jobs)
            seen.append(wall)
            return rows

    def loop() -> float:
        with ground.scratch() as place:
            return raw_loop(place, jobs)

    mine, theirs = alternate(rounds, ours, loop)
    yield Figure(
        NAME, f"{jobs:,} no-op tasks, 2 workers", median(mine), median(theirs), "jobs/s", "raw apsw, 100 a transaction",
        ("≥", 0.35), 0.5, f"by an observer's clock {median(seen):,.0f}", given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield from _beside_huey(quick, ours)
    yield from _beside_honker(quick, ours)


def covey(place: Path, jobs: int, workers: int = 2) -> tuple[float, float]:
    """Jobs a second: by the rows (first start to last end), and as another process sees completions appear."""
    url = ground.new_queue(place)
    (queue,) = ground.fill(url, jobs)
    with ground.Pool(url, count=workers, queues=[queue], drain=True) as pool:
        db = ground.connect(url)
        db.pragma("query_only", True)
        some = "select exists (select 1 from jobs where id <= 50 and state = 'completed')"
        left = (
            "select exists (select 1 from jobs where state = 'pending')"
            " or exists (select 1 from jobs where pool is not null)"
        )
        began = _when(lambda: db.execute(some).get, pool)
        ended = _when(lambda: not db.execute(left).get, pool)
        pool.process.wait(30)
        count, first, last = db.execute(
            "select count(*), min(started_at), max(finished_at) from jobs where state = 'completed'"
        ).get
        db.close()
    if count != jobs:
        raise RuntimeError(f"{count} of {jobs} jobs completed:\n{Path(pool.log).read_text()[-2000:]}")
    return jobs / (last - first) * 1e6, jobs / (ended - began)


def _when(true: Callable[[], object], pool: ground.Pool) -> float:
    """The instant at which it has become true."""
    deadline = time.monotonic() + 120
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the pool is stuck:\n{Path(pool.log).read_text()[-2000:]}")
        time.sleep(0.005)
    return time.monotonic()


def raw_loop(place: Path, jobs: int) -> float:
    url = ground.new_queue(place)
    (queue,) = ground.fill(url, jobs)
    db = ground.connect(url)
    began = time.monotonic()
    done = raw.drain(db, queue)
    took = time.monotonic() - began
    db.close()
    assert done == jobs
    return jobs / took


def _beside_huey(quick: bool, ours: Side) -> Iterator[Figure | Remark]:
    try:
        loose, durable = PEERS["sqlite"]["huey-nosync"].ready(), PEERS["sqlite"]["huey"].ready()
    except Missing as problem:
        yield Remark(NAME, f"huey could not be installed here: {problem}")
        return
    jobs = 3_000 if quick else 10_000
    best = max((1, 2), key=lambda workers: max(_peer(loose, workers, jobs) for _ in range(2)))
    mine, theirs, synced = alternate(
        3, ours, lambda: _peer(loose, best, jobs), lambda: _peer(durable, best, jobs)
    )  # fmt: skip
    yield Figure(
        NAME, "the same", median(mine), median(theirs), "jobs/s", f"huey, {best} worker(s), no fsync: its best",
        ("≥", 3), given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield Figure(
        NAME, "the same", median(mine), median(synced), "jobs/s", f"huey, {best} worker(s), fsync as Covey has it",
        given=ratio_of_pairs(mine, synced),
    )  # fmt: skip


def _beside_honker(quick: bool, ours: Side) -> Iterator[Figure | Remark]:
    try:
        honker = PEERS["sqlite"]["honker"].ready()
    except Missing as problem:
        yield Remark(NAME, f"honker could not be installed here: {problem}")
        return
    mine, theirs = alternate(3, ours, lambda: _peer(honker, 2, 10_000 if quick else 30_000))
    yield Figure(
        NAME, "the same", median(mine), median(theirs), "jobs/s", "honker, batch 100", ("≥", 1),
        given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip


def _peer(contestant: contest.Contestant, workers: int, jobs: int) -> float:
    return contest.drain(contestant, Files(), workers, jobs, PEER_S)[0]
