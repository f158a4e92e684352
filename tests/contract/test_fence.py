"""The fence: a stale pool can change nothing."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from covey.core.model import Output
from covey.core.turn import Held
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, command
from tests.kit.hand_pool import report

LATE = {
    "success": {"result": "1"},
    "failure": {"error": "late"},
    "worker_lost": {"error": "late"},
    "abort": {"error": "late"},
    "snooze": {"after_s": 5.0},
    "taken_back": {},
    "stopped": {},
    "gone": {"output": Output(b"late output")},
}


@pytest.mark.parametrize("outcome", LATE)
def test_a_stale_report_of_a_pool_with_the_same_name_leaves_the_row_as_it_is(engine: Engine, outcome: str) -> None:
    (made,) = engine.enqueue([command(key="k")])
    first = HandPool(engine, name="same")
    stale = first.claim_one()
    first.lose()
    second = HandPool(engine, name="same")
    fresh = second.claim_one()
    assert fresh.fence > stale.fence
    before = engine.job(made.id), engine.history(made.id)
    reply = second.report(stale, outcome, **LATE[outcome])  # the new pool under the old name, with the old fence
    assert reply.refused == [Held(stale.id, stale.fence)]
    assert (engine.job(made.id), engine.history(made.id)) == before
    assert first.report(stale, outcome, **LATE[outcome]).lost  # and the old pool itself is told that it is lost
    assert (engine.job(made.id), engine.history(made.id)) == before


@pytest.mark.parametrize("outcome", LATE)
def test_a_report_with_the_right_fence_from_a_pool_that_does_not_hold_the_job_is_refused(
    engine: Engine, outcome: str
) -> None:
    """A replica that took over may have given the same id and the same fence to another job."""
    (made,) = engine.enqueue([command()])
    holder, other = HandPool(engine), HandPool(engine)
    claim = holder.claim_one()
    before = engine.job(made.id), engine.history(made.id)
    assert other.report(claim, outcome, **LATE[outcome]).refused == [Held(claim.id, claim.fence)]
    assert (engine.job(made.id), engine.history(made.id)) == before


def test_a_stale_claim_in_the_held_list_of_a_beat_is_not_taken_for_the_new_one(engine: Engine) -> None:
    """The answer with the second claim was lost: all that the pool knows of is the first."""
    (made,) = engine.enqueue([command()])
    pool = HandPool(engine)
    stale = pool.claim_one()
    pool.report(stale, "taken_back")
    pool.claim_one()
    pool.beat(stale)
    job = engine.job(made.id)
    assert (job.state, job.attempts, job.fence) == ("pending", 0, 3)


def test_fences_strictly_rise_over_a_hundred_changes_of_hands(
    engine: Engine, proof: Callable[[int, int], int], clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command(max_attempts=1000)])
    dice, fences, stale = Random(7), [0], []
    pool = HandPool(engine)
    for _ in range(proof(40, 1000)):
        claim = pool.claim_one()
        fences.append(claim.fence)
        before = engine.job(made.id)
        for old in stale[-5:]:  # each earlier run speaks while the job runs
            assert pool.succeed(old).refused == [Held(old.id, old.fence)]
        assert engine.job(made.id) == before
        stale.append(claim)
        match dice.choice(["release", "expire", "fail", "cancel", "stray"]):
            case "release":
                pool.report(claim, "taken_back")
            case "expire":
                pool.lose()
                pool = HandPool(engine)
                if engine.job(made.id).state == "dead":  # interrupted too often
                    engine.retry([made.id])
            case "fail":
                pool.fail(claim, after_s=0.0)
            case "cancel":
                engine.cancel([made.id])
                pool.report(claim, "gone")
                engine.retry([made.id])
            case "stray":
                pool.beat()
        assert engine.job(made.id).fence >= fences[-1]
    assert fences == sorted(set(fences))


def test_a_report_from_the_future_is_refused(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    assert pool.report(Held(claim.id, claim.fence + 1), "success").refused == [Held(claim.id, claim.fence + 1)]
    assert engine.job(made.id).state == "processing"


def test_a_completed_job_cannot_be_failed_by_a_second_report_of_its_run(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    pool.succeed(claim, result="1")
    before = engine.job(made.id)
    pool.fail(claim, "too late")
    pool.turn(report(claim, "taken_back"), report(claim, "success", result="2"))
    assert engine.job(made.id) == before


def test_two_reports_about_one_run_in_one_turn_count_once(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    pool.turn(report(claim, "failure", error="first"), report(claim, "success", result="2"))
    job = engine.job(made.id)
    assert (job.state, job.error, job.result) == ("failed", "first", None)
