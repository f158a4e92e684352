"""What a server asks of the queue that it serves, for many who look at once."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable

import pytest

from covey.engine.engine import Engine
from covey.errors import TooLong
from tests.kit import HandPool, child, command

from .family import children, root

BEHIND = True


def test_jobs_are_found_together_by_what_they_were_called(engine: Engine) -> None:
    one, two = (made.id for made in engine.enqueue([command(key="one"), command(queue="q")]))
    asked = ["one", str(two), "nobody", "77", str(10**30), "\ud800"]
    assert {ref: job.id for ref, job in engine.jobs_of(asked).items()} == {"one": one, str(two): two}
    assert engine.queues_of(asked[:-1]) == {"one": "default", str(two): "q"}


def test_what_was_counted_once_is_shown_with_the_queues_of_today(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command(), command(), command(queue="q")])
    pool.succeed(pool.claim_one())
    counts = engine.counts()
    assert sum(counts["default"].values()) + sum(counts["q"].values()) == 3
    engine.pause("q")
    seen = {view.name: view for view in engine.counted_queues(counts)}
    assert seen["q"].counts == counts["q"]
    assert seen["q"].paused
    assert not seen["default"].paused


def test_a_moment_is_another_once_somebody_else_has_written(engine: Engine, connect: Callable[[], Engine]) -> None:
    before = engine.moment()
    connect().enqueue([command()])
    assert engine.moment() != before


def test_a_question_that_takes_longer_than_it_may_is_given_up_and_the_next_one_is_answered(engine: Engine) -> None:
    engine.enqueue([command() for _ in range(2000)])
    with pytest.raises(TooLong), engine.within(0.0):
        deque(engine.counts() for _ in range(1000))
    with engine.within(60):
        assert engine.counts()["default"] == {"pending": 2000}


def test_outcomes_of_children_are_those_of_the_join(engine: Engine, pool: HandPool) -> None:
    parent = root(engine, pool, child("a", max_attempts=1), child("b", max_attempts=1))
    first, second = children(engine, parent)
    for claim in pool.claim(2):
        if claim.id == first.id:
            pool.succeed(claim, result="7")
        else:
            pool.fail(claim)
    told = json.loads(engine.outcomes(parent))
    assert [(each["id"], each["state"], each["result"]) for each in told] == [
        (first.id, "completed", 7),
        (second.id, "dead", None),
    ]


def test_disks_with_room_are_nothing_to_speak_of(engine: Engine) -> None:
    assert engine.disk() == []


def test_what_was_shown_of_a_run_is_there_until_it_is_hidden(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command()])
    claim = pool.claim_one()
    engine.show_output(pool.id, claim.id, claim.fence, "out", "err")
    assert engine.shown_output(claim.id, claim.fence) == (b"out", b"err")
    engine.hide_output(claim.id, claim.fence)
    assert engine.shown_output(claim.id, claim.fence) == (b"", b"")


def test_of_many_jobs_those_that_have_ended_or_are_gone_are_told(engine: Engine, pool: HandPool) -> None:
    one, two = (made.id for made in engine.enqueue([command(priority=1), command()]))
    pool.succeed(pool.claim_one())
    assert engine.ended([one, two, 77]) == {one, 77}
