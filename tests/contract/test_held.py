"""The held list: an answer that was lost strands nothing."""

from __future__ import annotations

from covey.core.turn import Held
from covey.engine.engine import Engine
from tests.kit import HandPool, command
from tests.kit.hand_pool import report


def test_a_claim_whose_answer_was_lost_is_handed_back_without_cost(engine: Engine, pool: HandPool) -> None:
    ids = [made.id for made in engine.enqueue([command() for _ in range(3)])]
    kept = pool.claim_one()
    lost = pool.claim(2)  # this answer never arrives
    pool.beat(kept)
    jobs = [engine.job(id) for id in ids]
    assert [(job.state, job.attempts, job.pool) for job in jobs] == [
        ("processing", 1, pool.id),
        ("pending", 0, None),
        ("pending", 0, None),
    ]
    again = pool.claim(2)
    assert [claim.id for claim in again] == [claim.id for claim in lost]
    assert all(new.fence > old.fence for new, old in zip(again, lost, strict=True))


def test_the_lost_answer_that_turns_up_after_all_is_refused(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    lost = pool.claim_one()
    pool.beat()
    assert pool.succeed(lost).refused == [Held(lost.id, lost.fence)]
    assert engine.job(made.id).state == "pending"


def test_reports_sent_again_with_the_next_number_count_once(engine: Engine, pool: HandPool) -> None:
    """The answer was lost after the commit: same reports, next number, everything that is still held."""
    first, second = engine.enqueue([command(max_attempts=5), command()])
    claim = pool.claim_one()
    reports = [report(claim, "failure", error="boom")]
    pool.turn(*reports, want=1)  # claims the second; this answer is lost
    reply = pool.turn(*reports, want=1, held=[])
    assert (engine.job(first.id).state, engine.job(first.id).attempts) == ("failed", 1)
    assert len(engine.history(first.id)) == 1
    assert [(claim.id, claim.attempt) for claim in reply.claims] == [(second.id, 1)]


def test_a_turn_without_a_held_list_hands_nothing_back(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    pool.turn(want=1)
    pool.turn(want=1, workers=[])
    assert engine.job(made.id).state == "processing"


def test_a_cancelled_family_that_is_still_held_stays_and_one_that_is_not_is_released(
    engine: Engine, pool: HandPool
) -> None:
    ids = [made.id for made in engine.enqueue([command(), command()])]
    dying, _ = pool.claim(2)
    engine.cancel(ids)
    pool.beat(dying)
    assert [engine.job(id).pool for id in ids] == [pool.id, None]
    assert [engine.job(id).state for id in ids] == ["cancelled", "cancelled"]


def test_a_held_list_speaks_only_for_its_own_pool(engine: Engine, pool: HandPool) -> None:
    mine, theirs = engine.enqueue([command(), command()])
    other = HandPool(engine)
    pool.claim_one()
    other.claim_one()
    pool.beat()
    assert [engine.job(made.id).state for made in (mine, theirs)] == ["pending", "processing"]
