"""Backlog: the drain rate must not depend on how much is waiting. The start of a long queue beside a short one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from . import ground
from .report import Figure
from .timing import alternate, median, ratio_of_pairs

NAME = "backlog"
SMALL = 10_000
WARM = 2_000  # jobs at the start that do not count: the pool is still learning how short they are
MANY = 20


def run(quick: bool) -> Iterator[Figure]:
    big, part, rounds = (100_000, 20_000, 3) if quick else (1_000_000, 50_000, 3)
    for what, queues, named in (
        ("one queue", 1, True),
        ("two queues", 2, True),
        (f"all of {MANY} queues", MANY, False),
    ):
        with ground.scratch() as place:
            url = str(place / "big.db")
            ground.new_queue(place, "big.db")
            names = ground.fill(url, big, queues=queues)
            served = names if named else []

            def long(url: str = url, served: list[str] = served) -> float:
                return _rate(url, served, part)

            def short(place: Path = place, queues: int = queues, served: list[str] = served) -> float:
                small = ground.new_queue(place, f"small-{time.monotonic_ns()}.db")
                ground.fill(small, SMALL, queues=queues)
                return _rate(small, served, SMALL)

            mine, theirs = alternate(rounds, long, short)
            yield Figure(
                NAME, f"{what}, {big:,} waiting", median(mine), median(theirs), "jobs/s", f"{SMALL:,} waiting",
                ("≥", 0.8), given=ratio_of_pairs(mine, theirs),
            )  # fmt: skip


def _rate(url: str, served: list[str], jobs: int) -> float:
    """Jobs a second over the next ``jobs`` of the queue, without the first few."""
    db = ground.connect(url)
    first = db.execute("select min(id) from jobs where state = 'pending' and queue = 'q0'").get
    upto = first + jobs
    with ground.Pool(url, count=2, queues=served) as pool:
        # The order is by id over all queues, so the first queue tells how far the pool is.
        ahead = (
            "select seq from jobs where state = 'pending' and queue = 'q0' and kind = 'sync'"
            " order by priority desc, seq, id limit 1"
        )
        while (at := db.execute(ahead).get) is not None and at < upto:
            if pool.ended():
                raise RuntimeError(f"the pool ended:\n{Path(pool.log).read_text()[-2000:]}")
            time.sleep(0.02)
        if jobs == SMALL:
            while db.execute("select exists (select 1 from jobs where pool is not null)").get:
                time.sleep(0.005)
    ends = [
        row[0]
        for row in db.execute(
            "select finished_at from jobs where id between ? and ? and state = 'completed'", (first, upto - 1)
        )
    ]
    db.close()
    ends.sort()
    ends = ends[WARM:]
    # A turn ends many jobs at one instant: those of the first instant began before it.
    later = sum(end > ends[0] for end in ends)
    return later / (ends[-1] - ends[0]) * 1e6
