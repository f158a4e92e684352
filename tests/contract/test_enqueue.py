"""Client.enqueue: all on disk in order, or none."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from covey.core.machine import SECOND
from covey.core.model import MAX_PAYLOAD, Policy, Spec
from covey.core.view import Filter, rfc3339
from covey.engine.engine import Engine
from covey.errors import Duplicate, InvalidInput, TooLarge
from covey.testing import FakeClock
from tests.kit import HandPool, command, python_task


def test_an_enqueued_job_is_pending_and_shows_what_was_asked(engine: Engine, clock: FakeClock) -> None:
    spec = Spec(
        task="shell",
        kind="command",
        args='{"command":"echo hi"}',
        queue="images",
        priority=7,
        key="first",
        batch="b1",
        labels={"team": "red"},
        cwd="/tmp",
        policy=Policy(max_attempts=5, timeout_s=60.0),
    )
    (made,) = engine.enqueue([spec])
    job = engine.job(made.id)
    assert not made.existing
    assert (job.state, job.queue, job.priority, job.key) == ("pending", "images", 7, "first")
    assert (job.command, job.args) == ("echo hi", {"command": "echo hi"})
    assert (job.batch, job.labels, job.cwd, job.timeout) == ("b1", {"team": "red"}, "/tmp", 60.0)
    assert (job.attempts, job.max_attempts, job.max_retries, job.fence) == (0, 5, 5, 0)
    assert job.created_at == job.updated_at == rfc3339(clock())
    assert (job.pool, job.error, job.result, job.finished_at, job.root_id) == (None, None, None, None, job.id)


def test_ids_rise_in_the_order_of_the_batch(engine: Engine) -> None:
    ids = [made.id for made in engine.enqueue([command(f"echo {n}") for n in range(250)])]
    assert ids == sorted(set(ids))
    assert [engine.job(id).command for id in ids[:3]] == ["echo 0", "echo 1", "echo 2"]


def test_enqueueing_nothing_does_nothing(engine: Engine) -> None:
    assert engine.enqueue([]) == []
    assert engine.jobs(Filter()).jobs == []


def test_a_removed_job_s_id_is_never_used_again(engine: Engine, connect: Callable[[], Engine]) -> None:
    (first,) = engine.enqueue([command()])
    engine.cancel([first.id])
    engine.remove([first.id])
    (second,) = connect().enqueue([command()])
    assert second.id > first.id


def test_a_delay_and_a_future_run_at_schedule_a_job(engine: Engine, clock: FakeClock) -> None:
    later = clock() + 90 * SECOND
    delayed, timed, past = engine.enqueue([command(delay_s=90), command(run_at=later), command(run_at=clock() - 1)])
    for made in (delayed, timed):
        assert engine.job(made.id).state == "scheduled"
        assert engine.job(made.id).run_at == rfc3339(later)
    assert engine.job(past.id).state == "pending"


def test_two_engines_of_one_queue_see_each_other_s_jobs(engine: Engine, connect: Callable[[], Engine]) -> None:
    (made,) = engine.enqueue([command()])
    other = connect()
    assert other.job(made.id).state == "pending"
    assert other.database_id == engine.database_id


BAD_SPECS = {
    "an empty queue name": command(queue=""),
    "a queue name with a space": command(queue="a b"),
    "a queue name that is too long": command(queue="q" * 201),
    "an empty task": python_task(""),
    "a task with NUL": python_task("a\x00b"),
    "a task with a lone surrogate": python_task("a\ud800b"),
    "a key of digits": command(key="123"),
    "an empty key": command(key=""),
    "a key with a line end": command(key="a\nb"),
    "a unique_key of digits": command(unique_key="7"),
    "a kind that nobody runs": Spec(task="t", kind="fibre"),  # type: ignore[arg-type]
    "no attempts": command(max_attempts=0),
    "negative attempts": command(max_attempts=-1),
    "a fraction of an attempt": command(max_attempts=1.5),
    "a time-out of zero": command(timeout_s=0.0),
    "a time-out that is no number": command(timeout_s=float("nan")),
    "a negative delay": command(delay_s=-1.0),
    "a delay that is no number": command(delay_s=float("nan")),
    "a delay without end": command(delay_s=float("inf")),
    "a priority beyond 32 bits": command(priority=2**31),
    "a priority that is no whole number": command(priority=1.5),
    "a back-off that shrinks": command(backoff_base=0.5),
    "a back-off without end": command(backoff_cap_s=float("inf")),
    "a back-off of a thousand years": command(backoff_cap_s=4e10),
    "a back-off that is no number": command(backoff_base=float("nan")),
    "a run_at after the year 9999": command(run_at=253_402_300_800 * SECOND),
    "a run_at beyond 64 bits": command(run_at=2**70),
    "arguments with a lone surrogate": Spec(task="t", args='["\ud800"]'),
    "arguments with NUL": Spec(task="t", args='["\x00"]'),
    "a batch with NUL": command(batch="a\x00"),
    "a label with a lone surrogate": command(labels={"a": "\udfff"}),
    "a cwd with NUL": command(cwd="/tmp\x00"),
}


@pytest.mark.parametrize("what", BAD_SPECS)
def test_a_bad_spec_is_refused_in_one_line_and_nothing_of_its_batch_is_stored(engine: Engine, what: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        engine.enqueue([command(), BAD_SPECS[what], command()])
    assert "\n" not in str(refusal.value)
    assert refusal.value.exit_code == 2
    assert engine.jobs(Filter()).jobs == []


def test_a_bulk_with_one_bad_job_stores_none(engine: Engine, proof: Callable[[int, int], int]) -> None:
    count = proof(1000, 10_000)
    with pytest.raises(InvalidInput):
        engine.enqueue([command() for _ in range(count - 1)] + [command(queue="no such name!")])
    assert sum(engine.status().counts.values()) == 0


def test_a_payload_at_the_limit_is_stored_and_one_byte_more_is_refused(engine: Engine) -> None:
    fits = json.dumps({"command": "x" * (MAX_PAYLOAD - len('{"command": ""}'))})
    assert len(fits) == MAX_PAYLOAD
    (made,) = engine.enqueue([Spec(task="shell", kind="command", args=fits)])
    assert len(engine.job(made.id).args["command"]) == MAX_PAYLOAD - 15
    with pytest.raises(TooLarge):
        engine.enqueue([Spec(task="shell", kind="command", args=fits + " ")])
    wide = json.dumps(["é" * (MAX_PAYLOAD // 2)], ensure_ascii=False)  # the limit counts bytes, not characters
    with pytest.raises(TooLarge):
        engine.enqueue([Spec(task="t", args=wide)])
    assert sum(engine.status().counts.values()) == 1


def test_policy_is_copied_when_enqueued(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(max_attempts=2, backoff_base=5.0)])
    engine.set_setting("max_attempts", "9")
    engine.set_setting("backoff_base", "7")
    pool.fail(pool.claim_one())
    job = engine.job(made.id)
    assert (job.max_attempts, job.retry_at) == (2, rfc3339(clock() + 5 * SECOND))


def test_a_single_job_in_a_queue_that_is_known_starts_when_it_is_told_to(engine: Engine, clock: FakeClock) -> None:
    """It has a short way of its own; nothing of what it says may get lost there."""
    engine.enqueue([command()])
    later = clock() + SECOND
    for spec, state in (
        (command(), "pending"),
        (command(run_at=later), "scheduled"),
        (command(run_at=clock()), "pending"),
        (command(delay_s=1), "scheduled"),
        (command(delay_s=0), "pending"),
    ):
        (made,) = engine.enqueue([spec])
        assert (engine.job(made.id).state, made.existing) == (state, False)
    for spec in (command(key="k"), command(unique_key="k")):
        (made,) = engine.enqueue([spec])
        with pytest.raises(Duplicate):
            engine.enqueue([spec])
    assert engine.enqueue([]) == []
