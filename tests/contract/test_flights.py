"""Many at once: one key, one run, and nobody waits for ever."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from threading import Lock, Thread

import pytest

from covey import env
from covey.core.model import Report
from covey.engine.engine import Engine
from covey.testing import until
from tests.kit import HandPool, check_queue

from .test_cache import ask, done

CLIENTS, EACH, POOLS = 10, 10, 4


class Runs:
    """Who runs now, and who has run."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.most = self.now = 0
        self._lock = Lock()

    def began(self, id: int) -> None:
        with self._lock:
            self.ids.append(id)
            self.now += 1
            self.most = max(self.most, self.now)

    def ends(self) -> None:
        with self._lock:
            self.now -= 1


def crowd(engine: Engine, becomes: Callable[[], str]) -> tuple[list[int], Runs]:
    """A hundred jobs of one key by ten clients, worked off by four pools; what becomes of a run is drawn."""
    ids: list[int] = []
    runs = Runs()
    is_over = False

    def client() -> None:
        for _ in range(EACH):
            ids.append(engine.enqueue([ask(max_attempts=1)])[0].id)

    def work(number: int) -> None:
        pool = HandPool(engine, name=f"pool-{number}")
        while not is_over:
            for claim in pool.claim(3):
                runs.began(claim.id)
                outcome = becomes()
                runs.ends()
                told = done(claim) if outcome == "success" else Report(claim.id, claim.fence, outcome, error="no")  # type: ignore[arg-type]
                pool.turn(told)

    threads = [Thread(target=client) for _ in range(CLIENTS)]
    workers = [Thread(target=work, args=(number,)) for number in range(POOLS)]
    for thread in threads + workers:
        thread.start()
    try:
        for thread in threads:
            thread.join()
        until(lambda: engine.wait_for(ids, 0), 60, "all of them end")
    finally:
        is_over = True
        for thread in workers:
            thread.join()
    return ids, runs


def test_a_hundred_jobs_of_ten_clients_with_one_key_are_one_run(engine: Engine) -> None:
    ids, runs = crowd(engine, lambda: "success")
    assert len(runs.ids) == 1
    assert len(ids) == CLIENTS * EACH
    assert {(job.state, job.result) for job in map(engine.job, ids)} == {("completed", 42)}
    check_queue(engine)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_becomes_of_flights_one_runs_at_a_time_and_all_end(engine: Engine, seed: int) -> None:
    dice = random.Random(seed)
    ends = ["abort"] * 6 + ["taken_back"] * 6 + ["failure"] * 6 + ["success"]
    ids, runs = crowd(engine, lambda: dice.choice(ends))
    jobs = [engine.job(id) for id in ids]
    assert {job.state for job in jobs} <= {"completed", "dead"}
    assert runs.most == 1
    assert all(job.result == 42 for job in jobs if job.state == "completed")
    assert sum(job.attempts for job in jobs) == sum(job.state == "dead" or job.cached_from is None for job in jobs)
    assert engine.store.raw("select count(*) from {followers}")[0][0] == 0
    check_queue(engine)


def test_claims_of_a_turn_that_fails_before_the_cache_was_asked_come_back(engine: Engine) -> None:
    """Where a turn travels in one message, the cache is asked after it; a pool that was not told lists what it has."""
    ids = [engine.enqueue([ask()])[0].id for _ in range(2)]
    pool = HandPool(engine)
    claims = []
    env.arm("turn.before_sift", "raise")
    try:
        with contextlib.suppress(Exception):
            claims = pool.claim(5)
    finally:
        env.arm("turn.before_sift", None)
    pool.beat(*claims)
    claims += pool.claim(5)
    assert len(claims) == 1
    pool.turn(done(claims[0]))
    assert {engine.job(id).state for id in ids} == {"completed"}
    check_queue(engine)
