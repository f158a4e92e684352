"""What a running task knows, and what it can leave behind."""

from __future__ import annotations

import time

import pytest

from covey import Context, InvalidInput, TooLarge
from covey.core.model import Claim


def claim(timeout_s: float | None = None) -> Claim:
    return Claim(7, 3, "shop.add", "sync", 2, 5, timeout_s, "default", "k", None, 0, 0, None)


def test_it_knows_the_claim() -> None:
    context = Context.from_claim(claim())
    assert (context.job_id, context.attempt, context.max_attempts) == (7, 2, 5)
    assert (context.task, context.queue, context.key) == ("shop.add", "default", "k")
    assert (context.deadline, context.remaining(), context.stopping) == (None, None, False)


def test_the_time_out_begins_when_it_is_made() -> None:
    before = time.monotonic()
    context = Context.from_claim(claim(60))
    after = time.monotonic()
    assert context.deadline is not None
    assert before + 60 <= context.deadline <= after + 60
    left = context.remaining()
    assert left is not None
    assert 0 < left <= 60


def test_a_given_deadline_wins_and_nothing_remains_after_it() -> None:
    context = Context.from_claim(claim(60), deadline=time.monotonic() - 1)
    assert context.remaining() == 0


def test_stopping_is_asked_for_each_time() -> None:
    answers = iter([False, True])
    context = Context.from_claim(claim(), stopping=lambda: next(answers))
    assert [context.stopping, context.stopping] == [False, True]


def test_the_last_info_of_a_name_wins() -> None:
    context = Context.detached()
    context.info(rows=1, source="a")
    context.info(rows=2, done=True)
    assert context.collected == {"rows": 2, "source": "a", "done": True}


def test_info_that_is_not_json_changes_nothing() -> None:
    context = Context.detached()
    context.info(rows=1)
    for bad in (object(), float("nan"), b"x"):
        with pytest.raises(InvalidInput):
            context.info(rows=2, bad=bad)
    with pytest.raises(TooLarge):
        context.info(rows=2, bad="x" * 70_000)
    assert context.collected == {"rows": 1}


def test_a_detached_context_has_no_job() -> None:
    context = Context.detached("shop.add")
    assert (context.job_id, context.attempt, context.max_attempts, context.task) == (0, 1, 1, "shop.add")
    assert (context.remaining(), context.stopping, context.key) == (None, False, None)
    assert repr(context) == "<Context job 0 attempt 1/1>"
