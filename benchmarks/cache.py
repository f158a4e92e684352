"""The cache: what a hit costs beside a plain enqueue, a kept success beside a plain one, outputs that are restored.

In CPU time of this process, in alternating rounds, because the disk and the other core are not what is compared.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import count

from tests.kit import HandPool

from covey.blobs.directory import Directory
from covey.blobs.placing import ingest, place
from covey.core.cache_key import Parts
from covey.core.model import CacheAsk, Report, Spec
from covey.engine.engine import Engine
from covey.open import open_engine

from . import ground
from .report import Figure
from .timing import alternate, median, ratio_of_pairs

NAME = "cache"
BATCH = 20
LONG = "x" * 100
numbers = count(1)


def plain(n: int) -> Spec:
    return Spec(task="t", args=json.dumps([[n, LONG], {}]))


def cached(n: int) -> Spec:
    parts = Parts("t", {"version": "1"}, [[n, LONG], {}]).text()
    return Spec(task="t", args=json.dumps([[n, LONG], {}]), cache=CacheAsk(parts))


def cpu_of(work: object) -> float:
    """Microseconds of this process's CPU."""
    began = time.process_time()
    work()  # type: ignore[operator]
    return (time.process_time() - began) * 1e6


def enqueue_cost(engine: Engine, specs: list[Spec]) -> float:
    return cpu_of(lambda: [engine.enqueue([spec]) for spec in specs]) / len(specs)


def success_cost(engine: Engine, pool: HandPool, specs: list[Spec]) -> float:
    """Of a turn's report, a job."""
    engine.enqueue(specs)
    claims = pool.claim(len(specs))
    reports = []
    for claim, spec in zip(sorted(claims, key=lambda claim: claim.id), specs, strict=True):
        report = Report(claim.id, claim.fence, "success", 1, 2, "w1", result='{"score": 1.5}')
        report.ran = spec.cache.parts if spec.cache else None
        reports.append(report)
    return cpu_of(lambda: pool.turn(*reports)) / len(specs)


def run(quick: bool) -> Iterator[Figure]:
    rounds, each = (9, 100) if quick else (31, 300)
    with ground.scratch() as where:
        engine = open_engine(ground.new_queue(where, "cache.db"))
        pool = HandPool(engine)
        known = [cached(next(numbers)) for _ in range(each)]
        success_cost(engine, pool, known)

        ours, theirs = alternate(
            rounds,
            lambda: enqueue_cost(engine, known),
            lambda: enqueue_cost(engine, [plain(next(numbers)) for _ in range(each)]),
        )
        ratio = ratio_of_pairs(ours, theirs)
        yield Figure(
            NAME,
            "a hit without files",
            median(ours),
            median(theirs),
            "µs CPU",
            "a plain enqueue",
            ("≤", 1.2),
            given=ratio,
        )
        while claims := pool.claim(500):
            pool.turn(*(Report(claim.id, claim.fence, "success") for claim in claims))

        ours, theirs = alternate(
            rounds,
            lambda: success_cost(engine, pool, [cached(next(numbers)) for _ in range(BATCH)]),
            lambda: success_cost(engine, pool, [plain(next(numbers)) for _ in range(BATCH)]),
        )
        ratio = ratio_of_pairs(ours, theirs)
        yield Figure(
            NAME,
            "a success that is kept",
            median(ours),
            median(theirs),
            "µs CPU",
            "a plain success",
            ("≤", 1.3),
            given=ratio,
        )
        pool.source.leave(pool.id)
        engine.close()

        files = 2_000 if quick else 10_000
        blobs = Directory(os.path.join(where, "blobs"))
        made, root = os.path.join(where, "made"), os.path.join(where, "root")
        os.makedirs(made)
        names = [f"{n:05}" for n in range(files)]
        for name in names:
            with open(os.path.join(made, name), "w") as file:
                file.write(f"{name}{LONG * 10}")
        outputs = ingest(made, names, blobs)
        spent_s = cpu_of(lambda: place(root, outputs, blobs)) / 1e6
        yield Figure(
            NAME, f"{files:,} × 1 kB put in place", spent_s, 3.0 * files / 10_000, "s CPU", "the promise", ("≤", 1.0)
        )
