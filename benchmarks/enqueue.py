"""Enqueue: one by one and in bulk, beside SQLite writing the same rows at the same durability."""

from __future__ import annotations

import time
from collections.abc import Iterator

from . import ground, raw, tasks
from .report import Figure
from .timing import alternate, median, ratio_of_pairs

NAME = "enqueue"


def run(quick: bool) -> Iterator[Figure]:
    rounds, single, bulk = (5, 100, 5_000) if quick else (15, 200, 20_000)
    with ground.scratch() as place:
        mine, theirs = ground.new_queue(place, "ours.db"), ground.new_queue(place, "raw.db")
        ground.use(mine)
        db = ground.connect(theirs)
        args = tasks.noop.call(1, tasks.TEXT).args
        assert args is not None
        tasks.noop.enqueue(1, tasks.TEXT)

        def ours() -> float:
            began = time.monotonic()
            for n in range(single):
                tasks.noop.enqueue(n, tasks.TEXT)
            return single / (time.monotonic() - began)

        def plain() -> float:
            began = time.monotonic()
            for _ in range(single):
                raw.insert_one(db, "default", tasks.noop.name, args)
            return single / (time.monotonic() - began)

        a, b = alternate(rounds, ours, plain)
        yield Figure(
            NAME, "one by one", median(a), median(b), "jobs/s", "raw single inserts", ("≥", 0.6),
            given=ratio_of_pairs(a, b),
        )  # fmt: skip

        def ours_bulk() -> float:
            began = time.monotonic()
            tasks.noop.enqueue_many(tasks.noop.call(n, tasks.TEXT) for n in range(bulk))
            return bulk / (time.monotonic() - began)

        def plain_bulk() -> float:
            first, now = raw.next_id(db), time.time_ns() // 1000
            jobs = [(id, "default", tasks.noop.name, now) for id in range(first, first + bulk)]
            payloads = [(id, args) for id in range(first, first + bulk)]
            began = time.monotonic()
            raw.insert_many(db, jobs, payloads)
            return bulk / (time.monotonic() - began)

        a, b = alternate(5, ours_bulk, plain_bulk)
        yield Figure(
            NAME, f"enqueue_many, {bulk:,} calls", median(a), median(b), "jobs/s", "raw bulk insert", ("≥", 0.3),
            given=ratio_of_pairs(a, b),
        )  # fmt: skip
        _check(mine, theirs)
        db.close()


def _check(ours: str, theirs: str) -> None:
    """Both sides wrote rows of the same shape; a reference that writes less would be no reference."""
    columns = (
        "queue, kind, task, state, priority, max_attempts, seq = id, root_id = id, timeout_s, key, batch, labels, cwd"
    )
    sql = f"select {columns}, length(args) > 90 from jobs join payloads on job_id = id order by id desc limit 1"
    rows = []
    for url in (ours, theirs):
        db = ground.connect(url)
        rows.append(db.execute(sql).fetchall())
        db.close()
    assert rows[0] == rows[1], rows
