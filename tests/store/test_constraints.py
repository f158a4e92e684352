"""The tables themselves refuse what no rule may write."""

from __future__ import annotations

import apsw
import pytest

from covey.core.model import STATES
from covey.engine.engine import Engine
from covey.errors import StoreError
from tests.kit import HandPool, command

REFUSED = (apsw.ConstraintError, StoreError)
WRONG = {
    "a state that does not exist": "state = 'done'",
    "processing without an owner": "state = 'processing', pool = null",
    "pending with an owner": "pool = 1",
    "failed with an owner": "state = 'failed', run_at = 1, pool = 1",
    "completed with an owner": "state = 'completed', finished_at = 1, pool = 1",
    "dead with an owner": "state = 'dead', finished_at = 1, pool = 1",
    "waiting with an owner": "state = 'waiting', pool = 1",
    "blocked with an owner": "state = 'blocked', pool = 1",
    "an end without its time": "state = 'completed'",
    "a death without its time": "state = 'dead'",
    "a cancel without its time": "state = 'cancelled'",
    "the time of an end without the end": "finished_at = 1",
    "scheduled for no time": "state = 'scheduled', run_at = null",
    "failed with no next time": "state = 'failed', run_at = null",
    "a negative fence": "fence = -1",
    "negative attempts": "attempts = -1",
    "no attempts at all": "max_attempts = 0",
    "a time-out of nothing": "timeout_s = 0",
    "a kind that nobody runs": "kind = 'fibre'",
    "a number that is text": "priority = 'high'",
    "a parent that does not exist": "parent_id = 12345",
    "a phase that does not exist": "phase = 'dance'",
}


@pytest.mark.parametrize("what", WRONG)
def test_the_jobs_table_refuses(engine: Engine, what: str) -> None:
    (made,) = engine.enqueue([command()])
    with pytest.raises(REFUSED), engine.store.transaction():
        engine.store.raw("update {jobs} set " + WRONG[what] + " where id = :id", id=made.id)
    assert engine.job(made.id).state == "pending"


def test_every_state_of_the_model_can_be_stored(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    for state in STATES:
        ended = state in ("completed", "dead", "cancelled")
        with engine.store.transaction():
            engine.store.raw(
                "update {jobs} set state = :state, pool = :pool, finished_at = :at, run_at = 1 where id = :id",
                state=state,
                pool=1 if state == "processing" else None,
                at=1 if ended else None,
                id=made.id,
            )
        assert engine.job(made.id).state == state


def test_two_jobs_never_share_a_key(engine: Engine) -> None:
    engine.enqueue([command(key="a"), command(key="b")])
    for column in ("key", "unique_key"):
        with pytest.raises(REFUSED), engine.store.transaction():
            engine.store.raw("update {jobs} set " + column + " = 'same'")


def test_a_job_s_payload_result_and_history_go_with_it(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    pool.fail(pool.claim_one())
    engine.remove([made.id])
    for table in ("payloads", "results", "attempts", "edges"):
        assert engine.store.raw("select count(*) from {" + table + "}") == [(0,)]
