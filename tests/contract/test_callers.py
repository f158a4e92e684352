"""Jobs that end with whoever asked for them: enqueue(caller=…), still_here, let_go, callers, abandon."""

from __future__ import annotations

import pytest

from covey.core.turn import Caller
from covey.engine.engine import Engine
from covey.errors import CoveyError, InvalidInput
from tests.kit import HandPool, child, command
from tests.kit.faults import failpoint
from tests.kit.hand_pool import report

CALLER = Caller(host="far", boot="another:1", pid=4711, ticks=99, lease_s=30.0)
GONE = "the `covey run` that asked for it is gone (pid 4711 on far)"


def tied(engine: Engine, **options: object) -> int:
    (made,) = engine.enqueue([command(**options)], caller=CALLER)
    return made.id


def test_a_job_is_tied_to_its_caller_from_its_first_moment_on(engine: Engine) -> None:
    job = tied(engine, queue="q")
    (tie,) = engine.callers()
    assert (tie.job, tie.queue, tie.state, tie.is_over) == (job, "q", "pending", False)
    assert (tie.host, tie.boot, tie.pid, tie.ticks, tie.lease_s) == ("far", "another:1", 4711, 99, 30.0)


def test_there_is_no_moment_in_which_the_job_is_there_and_not_tied(engine: Engine) -> None:
    for point, jobs in (("enqueue.before_commit", 0), ("enqueue.after_commit", 1)):
        with failpoint(point, "raise"), pytest.raises((CoveyError, OSError)):
            tied(engine)
        assert (engine.status().counts["pending"], len(engine.callers())) == (jobs, jobs)


def test_a_job_that_was_there_before_is_not_tied_to_who_asks_for_it_again(engine: Engine) -> None:
    engine.enqueue([command(key="k")])
    (found,) = engine.enqueue([command(key="k", if_exists="return")], caller=CALLER)
    assert found.existing
    assert engine.callers() == []


def test_a_request_that_is_sent_twice_ties_its_job_once(engine: Engine) -> None:
    first = engine.enqueue([command()], request="r", caller=CALLER)
    assert engine.enqueue([command()], request="r", caller=CALLER) == first
    assert [tie.job for tie in engine.callers()] == [first[0].id]


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": ""},
        {"boot": "a\x00b"},
        {"host": "h" * 301},
        {"pid": 0},
        {"ticks": -1},
        {"lease_s": 0},
        {"lease_s": 1e9},
    ],
    ids=str,
)
def test_nobody_real_is_refused_as_a_caller_and_nothing_is_stored(engine: Engine, wrong: dict[str, object]) -> None:
    known = {"host": "far", "boot": "b", "pid": 1, "ticks": 1, "lease_s": 3.0}
    with pytest.raises(InvalidInput, match="caller"):
        engine.enqueue([command()], caller=Caller(**{**known, **wrong}))  # type: ignore[arg-type]
    assert engine.status().counts["pending"] == 0


def test_every_beat_of_a_caller_is_seen_and_holds_off_who_would_abandon_the_job(engine: Engine) -> None:
    job = tied(engine)
    (before,) = engine.callers()
    assert engine.still_here(job)
    (after,) = engine.callers()
    assert after.beat == before.beat + 1
    assert not engine.abandon(job, before.beat)
    assert engine.job(job).state == "pending"
    assert engine.callers() == [after]


def test_a_job_that_waits_is_cancelled_with_its_caller_and_says_why(engine: Engine, pool: HandPool) -> None:
    job = tied(engine)
    (tie,) = engine.callers()
    assert engine.abandon(job, tie.beat)
    view = engine.job(job)
    assert (view.state, view.error) == ("cancelled", GONE)
    assert engine.why(job).reason == GONE
    assert [event.text for event in engine.events(job) if event.kind == "cancelled"] == [f"was pending; {GONE}"]
    assert engine.callers() == []
    assert pool.claim(1) == []


def test_a_job_that_runs_is_stopped_by_its_pool_and_says_why_afterwards(engine: Engine, pool: HandPool) -> None:
    job = tied(engine)
    claim = pool.claim_one()
    (tie,) = engine.callers()
    assert engine.abandon(job, tie.beat)
    reply = pool.turn(held=[claim])
    assert [held.id for held in reply.cancels] == [job]
    pool.turn(report(claim, "gone"))
    view = engine.job(job)
    assert (view.state, view.pool, view.error) == ("cancelled", None, GONE)


def test_what_such_a_job_has_spawned_is_cancelled_with_it(engine: Engine, pool: HandPool) -> None:
    job = tied(engine)
    pool.spawn(pool.claim_one(), child("a"), child("b"))
    (tie,) = engine.callers()
    assert tie.state == "waiting"
    assert engine.abandon(job, tie.beat)
    assert [each.state for each in engine.tree(job).children] == ["cancelled", "cancelled"]
    assert engine.job(job).state == "cancelled"


def test_of_a_job_that_has_ended_or_is_no_more_only_the_tie_goes(engine: Engine, pool: HandPool) -> None:
    job, removed = tied(engine), tied(engine)
    pool.succeed(pool.claim_one())
    engine.remove([removed], force=True)
    assert [tie.is_over for tie in engine.callers()] == [True, True]
    for tie in engine.callers():
        assert not engine.abandon(tie.job, tie.beat)
    assert engine.callers() == []
    assert engine.job(job).state == "completed"


def test_abandoning_twice_or_what_was_never_tied_does_nothing(engine: Engine) -> None:
    job = tied(engine)
    (free,) = engine.enqueue([command()])
    assert engine.abandon(job, 0)
    assert not engine.abandon(job, 0)
    assert not engine.abandon(free.id, 0)
    assert engine.job(free.id).state == "pending"


def test_a_job_that_was_let_go_ends_with_nobody(engine: Engine) -> None:
    job = tied(engine)
    engine.let_go(job)
    engine.let_go(job)
    assert engine.callers() == []
    assert not engine.still_here(job)
    assert not engine.abandon(job, 0)
    assert engine.job(job).state == "pending"


def test_a_cancelled_job_that_somebody_retries_is_tied_to_nobody(engine: Engine) -> None:
    job = tied(engine)
    engine.cancel([job])
    engine.retry([job])
    assert engine.callers() == []
    assert engine.job(job).state == "pending"


def test_the_processes_of_a_lost_pool_do_not_hide_that_the_caller_is_gone(engine: Engine, pool: HandPool) -> None:
    job = tied(engine)
    pool.claim_one()
    pool.lose()
    (tie,) = engine.callers()
    assert engine.abandon(job, tie.beat)
    assert engine.job(job).state == "cancelled"
