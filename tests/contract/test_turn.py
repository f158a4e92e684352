"""Source.turn: reports in, claims out, one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from covey.core.machine import SECOND
from covey.core.model import Output
from covey.core.turn import Held, Turn, WorkerState
from covey.core.view import rfc3339
from covey.engine.engine import Engine
from covey.errors import CoveyError, Refused
from covey.testing import FakeClock
from tests.kit import HandPool, command, python_task
from tests.kit.faults import failpoint
from tests.kit.hand_pool import report


def test_a_claim_carries_what_a_worker_needs(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command("echo hi", key="k", timeout_s=9.0, cwd="/tmp", queue="q", keep_background=True)])
    claim = pool.claim_one()
    assert (claim.id, claim.fence, claim.attempt, claim.max_attempts) == (made.id, 1, 1, 3)
    assert (claim.task, claim.kind, claim.queue, claim.key, claim.cwd) == ("shell", "command", "q", "k", "/tmp")
    assert (claim.timeout_s, claim.keep_background, claim.interruptions) == (9.0, 1, 0)
    assert claim.args == '{"command": "echo hi"}'


def test_a_claimed_job_is_processing_and_belongs_to_its_pool(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    pool.claim_one()
    job = engine.job(made.id)
    assert (job.state, job.pool, job.attempts, job.fence) == ("processing", pool.id, 1, 1)
    assert (job.locked_by, job.locked_until) == ("hand", rfc3339(clock() + 30 * SECOND))


def test_no_job_is_claimed_twice(engine: Engine, connect: Callable[[], Engine]) -> None:
    engine.enqueue([command() for _ in range(30)])
    pools = [HandPool(connect()) for _ in range(3)]
    claimed = [claim.id for _ in range(10) for pool in pools for claim in pool.claim(2)]
    assert len(claimed) == len(set(claimed)) == 30


def test_success_completes_the_job_with_its_result(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([python_task("t", 1)])
    claim = pool.claim_one()
    started = clock()
    clock.advance(2)
    reply = pool.succeed(claim, result='{"sum":[1,2]}', worker="python-1", started_at=started, exit_code=0, info='"i"')
    job = engine.job(made.id)
    assert (job.state, job.result, job.worker, job.exit_code, job.info) == (
        "completed",
        {"sum": [1, 2]},
        "python-1",
        0,
        "i",
    )
    assert (job.started_at, job.finished_at) == (rfc3339(started), rfc3339(clock()))
    assert (job.pool, job.locked_by, job.locked_until, job.error) == (None, None, None, None)
    assert reply.refused == []


def test_failure_backs_off_and_then_is_tried_again(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command("exit 3")])
    pool.fail(pool.claim_one(), "exit code 3", exit_code=3, worker="shell-1")
    job = engine.job(made.id)
    assert (job.state, job.error, job.exit_code, job.attempts) == ("failed", "exit code 3", 3, 1)
    assert (job.pool, job.retry_at) == (None, rfc3339(clock() + 2 * SECOND))
    clock.advance(1.999)
    assert pool.claim(1) == []
    clock.advance(0.001)
    assert pool.claim_one().attempt == 2


def test_default_delays_are_2_and_4_seconds_and_three_runs_are_all(
    engine: Engine, pool: HandPool, clock: FakeClock
) -> None:
    (made,) = engine.enqueue([command("false")])
    delays = []
    for run in (1, 2, 3):
        claim = pool.claim_one()
        assert claim.attempt == run
        failed_at = clock()
        pool.fail(claim)
        while run < 3 and engine.job(made.id).state != "pending":
            clock.advance(0.5)
            pool.turn(held=[])
        delays.append((clock() - failed_at) / SECOND)
    assert delays == [2, 4, 0]
    assert (engine.job(made.id).state, engine.job(made.id).attempts) == ("dead", 3)
    clock.advance(10_000)
    assert pool.claim(1) == []


def test_a_dead_job_is_locked_by_nobody(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    pool.fail(pool.claim_one())
    job = engine.job(made.id)
    assert (job.state, job.pool, job.locked_by, job.locked_until) == ("dead", None, None, None)
    assert job.finished_at is not None


def test_retry_after_replaces_the_back_off(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    pool.fail(pool.claim_one(), after_s=77.0)
    assert engine.job(made.id).retry_at == rfc3339(clock() + 77 * SECOND)


@pytest.mark.parametrize("after_s", [float("nan"), float("inf"), float("-inf"), -5.0, 1e300])
@pytest.mark.parametrize("outcome", ["failure", "snooze"])
def test_an_impossible_delay_from_a_task_never_stops_a_turn(
    engine: Engine, pool: HandPool, outcome: str, after_s: float
) -> None:
    bad, good = engine.enqueue([command(), command()])
    first, second = pool.claim(2)
    pool.turn(report(first, outcome, error="boom", after_s=after_s), report(second, "success"))
    assert engine.job(bad.id).state in ("failed", "scheduled", "pending")
    assert engine.job(good.id).state == "completed"


def test_abort_buries_the_job_whatever_attempts_are_left(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command(max_attempts=9)])
    pool.report(pool.claim_one(), "abort", error="no such file")
    job = engine.job(made.id)
    assert (job.state, job.error, job.attempts) == ("dead", "no such file", 1)


def test_snooze_schedules_the_job_and_gives_the_attempt_back(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    for _ in range(3):
        pool.report(pool.claim_one(), "snooze", after_s=60.0)
        job = engine.job(made.id)
        assert (job.state, job.attempts, job.run_at) == ("scheduled", 0, rfc3339(clock() + 60 * SECOND))
        assert pool.claim(1) == []
        clock.advance(60)


@pytest.mark.parametrize("outcome", ["taken_back", "stopped"])
def test_a_job_that_was_handed_back_has_lost_no_attempt(engine: Engine, pool: HandPool, outcome: str) -> None:
    (made,) = engine.enqueue([command(max_attempts=1)])
    for run in range(1, 6):
        claim = pool.claim_one()
        assert (claim.attempt, claim.fence) == (1, run)
        pool.report(claim, outcome)
        job = engine.job(made.id)
        assert (job.state, job.attempts, job.pool, job.interruptions) == ("pending", 0, None, 0)


def test_a_lost_worker_costs_an_attempt_like_any_failure(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(max_attempts=2)])
    pool.report(pool.claim_one(), "worker_lost", error="worker lost: signal 9")
    assert (engine.job(made.id).state, engine.job(made.id).attempts) == ("failed", 1)
    clock.advance(2)
    pool.report(pool.claim_one(), "worker_lost", error="worker lost: signal 9")
    job = engine.job(made.id)
    assert (job.state, job.attempts, job.error) == ("dead", 2, "worker lost: signal 9")


def test_history_keeps_each_failed_attempt_with_its_output(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(max_attempts=3)])
    for n in (1, 2):
        claim = pool.claim_one()
        pool.fail(
            claim, f"boom {n}", detail="trace", output=Output(b"out", b"err\xff\x00", 5, 6), worker="w", exit_code=n
        )
        clock.advance(10)
    pool.succeed(pool.claim_one(), output=Output(b"fine"))
    history = engine.history(made.id)
    assert [(a.number, a.fence, a.outcome, a.error, a.exit_code) for a in history] == [
        (1, 1, "failure", "boom 1", 1),
        (2, 2, "failure", "boom 2", 2),
        (3, 3, "success", None, None),
    ]
    assert (history[0].stdout, history[0].stderr) == ("out", "err\ufffd\ufffd")
    assert (history[0].stdout_dropped, history[0].stderr_dropped, history[0].detail) == (5, 6, "trace")
    assert history[2].stdout == "fine"


def test_a_quiet_success_writes_no_history(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    pool.succeed(pool.claim_one())
    assert engine.history(made.id) == []


def test_one_turn_carries_many_reports_and_new_claims(engine: Engine, pool: HandPool) -> None:
    ids = [made.id for made in engine.enqueue([command() for _ in range(10)])]
    a, b, c, d = pool.claim(4)
    reply = pool.turn(
        report(a, "success"), report(b, "failure", error="x"), report(c, "taken_back"), report(d, "abort"), want=2
    )
    assert [engine.job(id).state for id in ids[:4]] == ["completed", "failed", "processing", "dead"]
    assert [claim.id for claim in reply.claims] == [ids[2], ids[4]]  # what was taken back is the oldest again


def test_turn_numbers_must_rise(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    pool.beat(claim)
    for number in (pool.number, pool.number - 1, 0, -1):
        with pytest.raises(Refused):
            pool.turn(report(claim, "success"), number=number)
    assert engine.job(made.id).state == "processing"
    pool.turn(report(claim, "success"), number=pool.number + 100)
    assert engine.job(made.id).state == "completed"


def test_a_turn_for_another_database_is_refused(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    with pytest.raises(Refused):
        pool.turn(report(claim, "success"), database_id="another")
    assert engine.job(made.id).state == "processing"


def test_a_turn_that_fails_before_its_commit_has_done_nothing(engine: Engine, pool: HandPool) -> None:
    first, second = engine.enqueue([command(), command()])
    claim = pool.claim_one()
    for point in ("turn.after_reports", "turn.after_claim", "turn.before_commit", "store.before_commit"):
        with failpoint(point, "raise"), pytest.raises((OSError, CoveyError)):
            pool.turn(report(claim, "success"), want=1, held=[])  # with a beat it takes more than one message
        assert [engine.job(made.id).state for made in (first, second)] == ["processing", "pending"]
    for point in ("turn.before_begin", "turn.before_commit", "store.before_commit"):
        with failpoint(point, "raise"), pytest.raises((OSError, CoveyError)):
            pool.turn(report(claim, "success"), want=1)
        assert [engine.job(made.id).state for made in (first, second)] == ["processing", "pending"]
    assert [claim.id for claim in pool.turn(report(claim, "success"), want=1).claims] == [second.id]


def test_the_same_report_again_after_a_lost_answer_is_answered_well(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([python_task("t")])
    claim = pool.claim_one()
    for _ in range(3):
        assert pool.succeed(claim, result="1").refused == []
    assert (engine.job(made.id).state, engine.job(made.id).attempts) == ("completed", 1)


def test_a_report_about_a_job_that_is_gone_is_refused_and_the_others_count(engine: Engine, pool: HandPool) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    reply = pool.turn(report(Held(99_999, 1), "success"), report(claim, "success"))
    assert reply.refused == [Held(99_999, 1)]
    assert engine.job(made.id).state == "completed"


def test_a_beat_is_counted_and_shows_the_pool_s_workers(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command()])
    claim = pool.claim_one()
    clock.advance(7)
    busy = WorkerState("shell-1", "command", "busy", 77, 5, clock(), job_id=claim.id, fence=1, busy_since=clock())
    idle = WorkerState("shell-2", "command", "idle", 78, 5, clock())
    pool.turn(held=[claim], workers=[busy, idle], zygote=(70, 4))
    (view,) = engine.pool_views()
    assert (view.id, view.beat_age_s, view.held, view.state) == (pool.id, 0.0, 1, "running")
    first, second = view.workers
    assert (first.id, first.host, first.kind, first.mode) == (f"{pool.id}/shell-1", "host-a", "command", None)
    assert (first.state, first.pid, first.ticks, first.job_id, first.fence) == ("busy", 77, 5, claim.id, 1)
    assert (first.busy_since, second.name, second.state) == (rfc3339(clock()), "shell-2", "idle")
    assert (engine.job(made.id).worker, engine.job(made.id).started_at) == ("shell-1", rfc3339(clock()))
    pool.turn(held=[claim], workers=[idle])
    assert [worker.name for worker in engine.pool_views()[0].workers] == ["shell-2"]


def test_every_writing_turn_moves_the_beat(engine: Engine, pool: HandPool) -> None:
    beats = [engine.pools()[0].beat]
    for _ in range(3):
        pool.beat()
        beats.append(engine.pools()[0].beat)
    assert beats == sorted(set(beats))


def test_an_idle_turn_writes_nothing(engine: Engine, pool: HandPool) -> None:
    before = engine.pools()
    for _ in range(5):
        assert pool.claim(4) == []
    assert engine.pools() == before


def test_a_stop_request_reaches_the_pool_in_its_next_turn(engine: Engine, pool: HandPool) -> None:
    assert not pool.turn(want=1).stop
    engine.stop_pools([pool.id])
    assert pool.turn(want=1).stop
    assert engine.pool_views()[0].state == "stopping"


def test_the_reply_says_when_the_next_job_is_due(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.enqueue([command(delay_s=50), command(delay_s=20)])
    assert pool.turn(want=1).next_due_at == clock() + 20 * SECOND
    assert pool.beat().next_due_at == clock() + 20 * SECOND


def test_leaving_hands_everything_back_without_cost(engine: Engine, pool: HandPool) -> None:
    ids = [made.id for made in engine.enqueue([command(), command(), command()])]
    first, second = pool.claim(2)
    engine.cancel([second.id])
    pool.source.leave(pool.id)
    jobs = [engine.job(id) for id in ids]
    assert [(job.state, job.attempts, job.pool) for job in jobs] == [
        ("pending", 0, None),
        ("cancelled", 1, None),
        ("pending", 0, None),
    ]
    assert engine.pool_views() == []
    assert HandPool(engine).claim_one().fence > first.fence


def test_a_reported_family_that_is_gone_although_nobody_cancelled_it_does_not_stop_the_turn(
    engine: Engine, pool: HandPool
) -> None:
    odd, good = engine.enqueue([command(), command()])
    first, second = pool.claim(2)
    reply = pool.turn(report(first, "gone"), report(second, "success"))
    assert reply.refused == [Held(first.id, first.fence)]
    assert [engine.job(made.id).state for made in (odd, good)] == ["processing", "completed"]


def test_a_turn_never_needs_more_than_its_own_words(engine: Engine) -> None:
    """The smallest turn: no reports, no wants, no held list."""
    pool = HandPool(engine)
    reply = engine.turn(Turn(pool=pool.id, database_id=pool.database_id, number=1))
    assert (reply.claims, reply.cancels, reply.refused, reply.lost, reply.stop) == ([], [], [], False, False)


def test_what_a_pool_does_meanwhile_disturbs_no_turn(engine: Engine, pool: HandPool) -> None:
    """It may be asked for never, once or often, by the thread that takes the turn."""
    threads: list[int] = []
    engine.while_waiting(lambda: bool(threads.append(threading.get_ident())))
    (job,) = engine.enqueue([command()])
    pool.succeed(pool.claim_one())
    assert engine.job(job.id).state == "completed"
    assert set(threads) <= {threading.get_ident()}
