"""Fairness: eight pools on one file. Every pool gets between half and twice its fair share."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator

from . import gate, ground, tasks
from .report import Figure

NAME = "fairness"
POOLS = 8


def run(quick: bool) -> Iterator[Figure]:
    jobs = 10_000 if quick else 40_000
    with ground.scratch() as place:
        shares = _shares(place, jobs)
    fair = jobs / POOLS
    told = f"shares {' '.join(str(share) for share in sorted(shares))}"
    yield Figure(NAME, f"{POOLS} pools, least share", min(shares), fair, "jobs", "a fair share", ("≥", 0.5), note=told)
    yield Figure(NAME, f"{POOLS} pools, greatest share", max(shares), fair, "jobs", "a fair share", ("≤", 2))
    found = gate.contest("covey", 2.0 if quick else 4.0)
    yield Figure(
        NAME, "the gate alone, least share", min(found.counts), found.fair, "commits", "a fair share", ("≥", 0.5)
    )
    yield Figure(
        NAME, "the gate alone, greatest share", max(found.counts), found.fair, "commits", "a fair share", ("≤", 2)
    )


def _shares(place, jobs: int) -> list[int]:  # type: ignore[no-untyped-def]
    """How many jobs each pool ran, the tasks themselves tell."""
    url = ground.new_queue(place)
    ground.use(url)
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(ground.Pool(url, count=1, name=f"p{n}")) for n in range(POOLS)]
        for pool in pools:
            pool.until_ready(url, 2)
        time.sleep(0.5)
        tasks.whose.enqueue_many(tasks.whose.call(n) for n in range(jobs))
        db = ground.connect(url)
        open_jobs = (
            "select exists (select 1 from jobs where state = 'pending')"
            " or exists (select 1 from jobs where pool is not null)"
        )
        deadline = time.monotonic() + 120
        while db.execute(open_jobs).get and time.monotonic() < deadline:
            time.sleep(0.05)
    counts = Counter(json.loads(body) for (body,) in db.execute("select body from results"))
    db.close()
    if sum(counts.values()) != jobs:
        raise RuntimeError(f"{sum(counts.values())} of {jobs} jobs ran")
    return [*counts.values(), *[0] * (POOLS - len(counts))]
