"""Client.why: a reason for every state, in one sentence, with advice that works."""

from __future__ import annotations

from covey.core.view import Edit
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, after, child, command, python_task

from .family import children, root


def why(engine: Engine, id: int) -> str:
    answer = engine.why(id)
    assert answer.id == id
    assert "\n" not in answer.reason
    assert answer.state == engine.job(id).state
    return answer.reason


def test_every_state_has_its_reason(engine: Engine, clock: FakeClock) -> None:
    (made,) = engine.enqueue([command(delay_s=60, max_attempts=2, queue="q")])
    assert "not start before" in why(engine, made.id)
    assert "in 60 s" in why(engine, made.id)
    clock.advance(60)
    pool = HandPool(engine)
    pool.beat()
    assert "next in line" in why(engine, made.id)
    claim = pool.claim_one()
    assert f"pool {pool.id}" in why(engine, made.id)
    pool.fail(claim, "exit code 7")
    assert "attempt 1 of 2 failed: exit code 7" in why(engine, made.id)
    clock.advance(2)
    pool.fail(pool.claim_one(), "exit code 8")
    assert "given up after 2 of 2 attempts: exit code 8" in why(engine, made.id)
    engine.retry([made.id])
    claim = pool.claim_one()
    engine.cancel([made.id])
    assert "still stopping" in why(engine, made.id)
    pool.report(claim, "gone")
    assert "cancelled" in why(engine, made.id)
    engine.retry([made.id])
    pool.succeed(pool.claim_one())
    assert "completed" in why(engine, made.id)


def test_a_pending_job_says_what_it_waits_for(engine: Engine) -> None:
    first, second, task = engine.enqueue([command(queue="q"), command(queue="q"), python_task("t", queue="q")])
    assert "no worker serves" in why(engine, second.id)
    HandPool(engine, queues=("other",))
    assert "no worker serves" in why(engine, second.id)
    HandPool(engine, queues=("q",), kinds=("command",), count=3)
    assert "1 jobs are ahead" in why(engine, second.id)
    assert "3 workers" in why(engine, first.id)
    assert "can run 't'" in why(engine, task.id)
    engine.pause("q", for_s=60)
    assert "paused until" in why(engine, second.id)
    assert engine.why(second.id).advice == ["covey queue resume q"]


def test_the_facts_hold_the_latest_events(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    engine.cancel([made.id])
    facts = engine.why(made.id).facts
    assert (facts["attempts"], facts["interruptions"], facts["ahead"]) == (0, 0, None)
    assert "cancelled: was pending" in facts["events"][0]


def test_members_of_a_family_say_whom_they_wait_for(engine: Engine) -> None:
    pool = HandPool(engine)
    one = root(engine, pool, child("a"), child("b"), after("u"), child_mode="serial")
    first, second = (job.id for job in children(engine, one))
    uncle = second + 1
    assert f"it waits for children {first}, {second} (0 of 2 have ended)" in why(engine, one)
    assert f"job {first} comes before it" in why(engine, second)
    assert f"blocked until root {one} has ended" in why(engine, uncle)


def test_jobs_of_a_serial_or_limited_queue_say_who_is_before_them(engine: Engine) -> None:
    engine.set_queue("lane", serial=True)
    engine.set_queue("two", concurrency=1)
    pool = HandPool(engine)
    one, two = (made.id for made in engine.enqueue([command(queue="lane"), command(queue="lane")]))
    three, four = (made.id for made in engine.enqueue([command(queue="two"), command(queue="two")]))
    assert "next in line" in why(engine, one)
    assert "next in line" in why(engine, three)
    pool.claim(2)
    assert f"the lane belongs to {one}" in why(engine, two)
    assert "runs at most 1 at a time, and so many run now" in why(engine, four)


def test_the_facts_hold_five_events_at_most(engine: Engine) -> None:
    (made,) = engine.enqueue([command()])
    for priority in range(7):
        engine.edit(made.id, Edit(priority=priority))
    assert len(engine.why(made.id).facts["events"]) == 5
