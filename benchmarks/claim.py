"""Claim: a turn must cost the same whether the table is empty otherwise or holds a million finished jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from covey.core.model import Report
from covey.core.turn import Capacity, PoolInfo, Turn
from covey.engine.engine import Engine
from covey.open import open_engine

from . import ground
from .report import Figure
from .timing import median, percentile

NAME = "claim"
BATCH = 20


class Claimer:
    """Takes turns as a pool would: reports what it has, claims the next."""

    def __init__(self, url: str, queue: str) -> None:
        self.engine: Engine = open_engine(url)
        info = PoolInfo(
            name="bench", host="bench", boot="bench", pid=1, ticks=1, queues=(queue,), kinds=("sync",), count=2,
            version="0", lease_s=30,
        )  # fmt: skip
        self.pool = self.engine.register(info).pool
        self.want = Capacity((queue,), {"sync": BATCH}, BATCH)
        self.number = 0
        self.reports: list[Report] = []

    def turn(self) -> float:
        """Milliseconds of one turn."""
        self.number += 1
        turn = Turn(
            pool=self.pool, database_id=self.engine.database_id, number=self.number, wants=[self.want],
            reports=self.reports,
        )  # fmt: skip
        began = time.perf_counter()
        reply = self.engine.turn(turn)
        took = time.perf_counter() - began
        assert len(reply.claims) == BATCH
        now = time.time_ns() // 1000
        self.reports = [Report(claim.id, claim.fence, "success", now, now, "w1") for claim in reply.claims]
        return took * 1e3


def run(quick: bool) -> Iterator[Figure]:
    finished, turns = (100_000, 200) if quick else (1_000_000, 1_000)
    with ground.scratch() as place:
        urls = [ground.new_queue(place, "long.db"), ground.new_queue(place, "short.db")]
        ground.fill(urls[0], finished, ended=True)
        claimers = []
        for url in urls:
            (queue,) = ground.fill(url, (turns + 20) * BATCH)
            claimers.append(Claimer(url, queue))
        times: list[list[float]] = [[], []]
        for claimer in claimers:
            for _ in range(10):
                claimer.turn()
        for number in range(turns):
            for side in (0, 1) if number % 2 else (1, 0):
                times[side].append(claimers[side].turn())
        for claimer in claimers:
            claimer.engine.close()
    yield Figure(
        NAME, f"p95 of {turns} turns, {finished:,} finished", percentile(times[0], 0.95), percentile(times[1], 0.95),
        "ms", "the same with none", ("≤", 1.5),
    )  # fmt: skip
    yield Figure(NAME, "p50", median(times[0]), median(times[1]), "ms", "the same with none")
