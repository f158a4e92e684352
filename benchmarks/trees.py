"""Trees: what a family costs beside the same jobs without one, and what a very large one costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
from tests.kit.running import memory

from covey.engine.engine import Engine
from covey.open import open_engine

from . import ground, tasks
from .report import Figure, Remark
from .timing import alternate, median, ratio_of_pairs

NAME = "trees"
WORKERS = 2
GROWTH = 200 << 20


def run(quick: bool) -> Iterator[Figure | Remark]:
    jobs, rounds = (3_000, 3) if quick else (10_000, 5)
    wide, narrow, flat, ready = alternate(
        rounds,
        lambda: _rate(lambda: _plant(1, jobs), jobs),
        lambda: _rate(lambda: _plant(jobs // 10, 10), jobs),
        lambda: _rate(lambda: _flat(jobs), jobs),
        lambda: _rate(lambda: _flat(jobs), jobs, from_first_start=True),
    )
    against = f"{jobs:,} flat jobs, enqueue to last end"
    yield Figure(
        NAME, f"1 parent × {jobs:,} children", median(wide), median(flat), "jobs/s", against, ("≥", 0.7),
        given=ratio_of_pairs(wide, flat),
    )  # fmt: skip
    yield Figure(
        NAME, f"{jobs // 10:,} parents × 10 children", median(narrow), median(flat), "jobs/s", against, ("≥", 0.5),
        given=ratio_of_pairs(narrow, flat),
    )  # fmt: skip
    yield Figure(
        NAME, f"1 parent × {jobs:,} children", median(wide), median(ready), "jobs/s", "flat jobs, enqueued before",
        given=ratio_of_pairs(wide, ready),
    )  # fmt: skip
    yield from _large(10_000 if quick else 100_000)


def _plant(parents: int, children: int) -> None:
    tasks.fan_out.enqueue_many([tasks.fan_out.call(children)] * parents)


def _flat(jobs: int) -> None:
    tasks.noop.enqueue_many([tasks.noop.call(n, tasks.TEXT) for n in range(jobs)])


def _rate(fill: Callable[[], None], jobs: int, *, from_first_start: bool = False) -> float:
    """No-op jobs a second, from the first word of it to the last end; parents are overhead and do not count."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        ground.use(url)
        with ground.Pool(url, count=WORKERS) as pool:
            pool.until_ready(url, WORKERS)
            began = time.time_ns() // 1000
            fill()
            db = ground.connect(url)
            first, last = _finished(db, jobs, pool)
            db.close()
        return jobs / (last - (first if from_first_start else began)) * 1e6


def _finished(db: apsw.Connection, jobs: int, pool: ground.Pool) -> tuple[int, int]:
    """(first start, last end), once all of the jobs and their parents have completed."""
    deadline = time.monotonic() + 180
    while db.execute("select exists (select 1 from jobs where finished_at is null)").get:
        if time.monotonic() > deadline or pool.ended():
            raise RuntimeError(f"the pool is stuck:\n{Path(pool.log).read_text()[-2000:]}")
        time.sleep(0.005)
    done, first, last = db.execute(
        "select sum(task = ?), min(started_at), max(finished_at) from jobs where state = 'completed'",
        (tasks.noop.name,),
    ).get
    if done != jobs:
        raise RuntimeError(f"{done} of {jobs} jobs completed:\n{Path(pool.log).read_text()[-2000:]}")
    return first, last


def _large(count: int) -> Iterator[Figure | Remark]:
    """One parent with very many children that nobody runs: memory of pool and worker, and reading it."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        ground.use(url)
        engine = open_engine(url)
        small = tasks.fan_out.using(queue="here").enqueue(100, "elsewhere").id
        with ground.Pool(url, count=1, queues=["here"]) as pool:
            pool.until_ready(url, 1)
            _spawned(engine, small, 100)
            watched = {pid: memory(pid) for pid in (pool.process.pid, *_workers(engine))}
            peak = dict(watched)
            big = tasks.fan_out.using(queue="here").enqueue(count, "elsewhere").id
            began = time.monotonic()
            while engine.job(big).children.total < count:
                for pid in watched:
                    peak[pid] = max(peak[pid], memory(pid))
                time.sleep(0.005)
                if time.monotonic() - began > 180:
                    raise RuntimeError(f"not spawned:\n{Path(pool.log).read_text()[-2000:]}")
            took = time.monotonic() - began
        growth = {pid: peak[pid] - watched[pid] for pid in watched}
        pool_growth = growth.pop(pool.process.pid)
        for who, bytes in (("pool", pool_growth), ("worker", max(growth.values()))):
            yield Figure(
                NAME, f"spawn_many of {count:,}: {who} grows by", bytes / 2**20, GROWTH / 2**20, "MiB", "bound",
                ("≤", 1), note=f"took {took:.1f} s",
            )  # fmt: skip
        first, again = alternate(51, lambda: _page(engine, big), lambda: _page(engine, small))
        engine.close()
        tasks.app.close()
        yield Figure(
            NAME, f"first page of {count:,} children", median(first) * 1e3, median(again) * 1e3, "ms", "of 100",
            ("≤", 2),
        )  # fmt: skip


def _spawned(engine: Engine, id: int, count: int) -> None:
    deadline = time.monotonic() + 30
    while engine.job(id).children.total < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"job {id} has not spawned {count} children")
        time.sleep(0.01)


def _workers(engine: Engine) -> list[int]:
    return [worker.pid for view in engine.pool_views() for worker in view.workers if worker.pid]


def _page(engine: Engine, id: int) -> float:
    began = time.perf_counter()
    engine.tree(id, limit=50)
    return time.perf_counter() - began
