"""A pool killed at every point of its turn: nothing is lost, nothing completes twice, no attempt is charged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.engine.engine import Engine
from tests.kit import HandPool, check_queue, command
from tests.kit.faults import Child

DOOMED = """
import sys
from covey import env
from covey.open import open_engine
from tests.kit import HandPool
from tests.kit.hand_pool import report
engine = open_engine(sys.argv[1])
pool = HandPool(engine)
claims = pool.claim(3)
print(pool.id, flush=True)
env.arm(sys.argv[2], "kill")
done, failed, back = claims
pool.turn(report(done, "success"), report(failed, "failure", error="boom"), report(back, "taken_back"), want=2)
"""

BEFORE = [
    "turn.before_begin",
    "store.after_begin",
    "turn.after_reports",
    "turn.after_claim",
    "turn.before_commit",
    "store.before_commit",
]
AFTER = ["store.after_commit", "turn.after_commit"]


@pytest.mark.parametrize("point", BEFORE + AFTER)
def test_a_pool_killed_inside_its_turn_loses_no_job_and_charges_none(
    path: str, opened: Callable[[str], Engine], point: str
) -> None:
    engine = opened(path)
    ids = [made.id for made in engine.enqueue([command() for _ in range(5)])]
    with Child(DOOMED, path, point) as doomed:
        lost = int(doomed.line())
        assert doomed.end()[0] == -9
    beat = next(each.beat for each in engine.pools() if each.id == lost)
    reaped = engine.reap(lost, beat)
    jobs = [engine.job(id) for id in ids]
    if point in BEFORE:  # the turn did not happen: the three first claims come back
        assert reaped == 3
        assert [(job.state, job.attempts, job.interruptions) for job in jobs] == [("pending", 0, 1)] * 3 + [
            ("pending", 0, 0)
        ] * 2
    else:  # it did: reports count, and the two claims of its answer come back
        assert reaped == 2
        assert [(job.state, job.attempts, job.interruptions) for job in jobs] == [
            ("completed", 1, 0),
            ("failed", 1, 0),
            ("pending", 0, 1),
            ("pending", 0, 1),
            ("pending", 0, 0),
        ]
    pool = HandPool(engine)
    for claim in pool.claim(9):
        pool.succeed(claim)
    engine.retry([job.id for job in jobs if job.state == "failed"])
    for claim in pool.claim(9):
        pool.succeed(claim)
    assert engine.status().counts["completed"] == 5
    assert check_queue(engine, acknowledged=ids, fences={job.id: job.fence for job in jobs}) == []


def test_a_reaper_killed_inside_its_work_is_followed_by_the_next(path: str, opened: Callable[[str], Engine]) -> None:
    engine = opened(path)
    engine.enqueue([command()])
    pool = HandPool(engine)
    pool.claim_one()
    code = """
import sys
from covey import env
from covey.open import open_engine
engine = open_engine(sys.argv[1])
env.arm("reap.before_commit", "kill")
(pool,) = engine.pools()
engine.reap(pool.id, pool.beat)
"""
    with Child(code, path) as reaper:
        assert reaper.end()[0] == -9
    assert engine.status().counts["processing"] == 1
    assert pool.lose() == 1
    assert engine.status().counts["pending"] == 1
