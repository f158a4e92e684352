"""What is stored when a task is enqueued."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from covey import Covey, Duplicate, InvalidInput, NotFound, TooLarge
from covey.core.view import Filter
from tests.kit import HandPool

from . import functions

SOON = datetime(2999, 1, 1, tzinfo=UTC)


def stored(app: Covey) -> int:
    return len(app.client.jobs(Filter()).jobs)


def between(earlier: str | None, later: str | None) -> float:
    """Seconds from one time of a view to another."""
    return (datetime.fromisoformat(str(later)) - datetime.fromisoformat(str(earlier))).total_seconds()


# ── arguments ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_are_stored_as_they_were_given(app: Covey) -> None:
    add = app.task(functions.add)
    assert add.enqueue(1).view.args == [[1], {}]
    assert add.enqueue(1, 2).view.args == [[1, 2], {}]
    assert add.enqueue(1, b=2).view.args == [[1], {"b": 2}]
    assert app.task(functions.join).enqueue("a", "b", sep="-").view.args == [["a", "b"], {"sep": "-"}]
    assert app.task(functions.keyword_only).enqueue(path="p").view.args == [[], {"path": "p"}]


def test_no_arguments_means_no_payload(app: Covey, worker: HandPool) -> None:
    app.task(functions.nothing).enqueue()
    assert worker.claim_one().args is None


def test_a_context_is_not_an_argument(app: Covey) -> None:
    assert app.task(functions.with_context).enqueue("ann").view.args == [["ann"], {}]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "message"),
    [
        ("add", (), {}, "add: missing a required argument: 'a'; it takes"),
        ("add", (1, 2, 3), {}, "too many positional arguments"),
        ("add", (1,), {"c": 2}, "unexpected keyword argument 'c'"),
        ("add", (1,), {"a": 2}, "multiple values for argument 'a'"),
        ("keyword_only", ("p",), {}, "too many positional arguments"),
        ("keyword_only", (), {}, "missing a required"),
        ("nothing", (1,), {}, "too many positional arguments"),
        ("with_context", (), {}, "missing a required argument: 'name'"),
        ("with_context", ("a", "b"), {}, "too many positional arguments"),
    ],
)
def test_arguments_that_the_task_cannot_take_are_refused(
    app: Covey, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    task = app.task(getattr(functions, name))
    with pytest.raises(InvalidInput, match=message):
        task.enqueue(*args, **kwargs)
    with pytest.raises(InvalidInput, match=f"functions.{name}"):
        task.call(*args, **kwargs)
    assert stored(app) == 0


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes", math.nan, {1: "a"}, "\ud800", [[datetime.now(UTC)]]])
def test_what_is_not_json_is_refused_and_named_but_not_shown(app: Covey, value: Any) -> None:
    task = app.task(functions.takes_anything)
    with pytest.raises(InvalidInput, match=r"takes_anything: argument 'value'"):
        task.enqueue(value)
    with pytest.raises(InvalidInput, match=r"takes_anything: argument 'value'"):
        task.enqueue(value=value)
    with pytest.raises(InvalidInput, match=r"elsewhere.task: argument 0"):
        app.enqueue("elsewhere.task", value)
    assert stored(app) == 0


def test_a_number_that_is_too_long_to_be_written_is_refused(app: Covey) -> None:
    task = app.task(functions.takes_anything)
    assert task.enqueue(10**4300 - 1).view.args == [[10**4300 - 1], {}]
    for value in (10**4300, [{"a": -(10**5000)}], {"a": [1.5, 10**5000]}):
        with pytest.raises(InvalidInput, match="a number of more than 4,300 digits; pass it as a string"):
            task.enqueue(value)
    assert stored(app) == 1


def test_a_back_off_that_no_float_can_hold_is_refused(app: Covey) -> None:
    with pytest.raises(InvalidInput, match="back-off"):
        app.task(functions.takes_anything).using(backoff_base=10**400).enqueue(1)
    assert stored(app) == 0


def test_a_payload_over_the_limit_is_refused(app: Covey) -> None:
    with pytest.raises(TooLarge, match="pass a path"):
        app.task(functions.takes_anything).enqueue("x" * (1 << 20))
    assert stored(app) == 0


# ── options ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_takes_its_policy_from_the_settings_and_has_no_time_out(app: Covey) -> None:
    app.client.set_setting("max_attempts", "7")
    view = app.task(functions.add).enqueue(1).view
    assert (view.max_attempts, view.timeout, view.queue, view.priority) == (7, None, "default", 0)


def test_what_the_task_says_wins_over_the_settings(app: Covey, worker: HandPool) -> None:
    task = app.task(queue="images", priority=3, max_retries=5, timeout=timedelta(minutes=1), labels={"a": "b"})
    view = task(functions.add).enqueue(1).view
    assert (view.queue, view.priority, view.max_attempts, view.timeout, view.labels) == ("images", 3, 5, 60, {"a": "b"})


def test_backoff_is_stored_with_the_job(app: Covey, worker: HandPool) -> None:
    job = app.task(backoff_base=9, max_backoff=4.5, jitter=False)(functions.add).enqueue(1)
    worker.fail(worker.claim_one())
    view = job.refresh().view
    assert view.state == "failed"
    assert between(view.updated_at, view.retry_at) == pytest.approx(4.5, abs=0.002)


def test_using_wins_over_the_task_and_leaves_it_alone(app: Covey) -> None:
    task = app.task(queue="images", max_attempts=5)(functions.add)
    chosen = task.using(queue="fast", batch="b1").using(priority=9, timeout=2)
    view = chosen.enqueue(1).view
    assert (view.queue, view.batch, view.priority, view.timeout, view.max_attempts) == ("fast", "b1", 9, 2, 5)
    view = task.enqueue(1).view
    assert (view.queue, view.batch, view.priority, view.timeout) == ("images", None, 0, None)


def test_a_time_with_a_zone_is_kept_exactly(app: Covey) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    task = app.task(functions.add)
    job = task.using(run_at=datetime(2999, 1, 1, 5, 30, 0, 123000, tzinfo=east)).enqueue(1)
    assert (job.view.state, job.view.run_at) == ("scheduled", "2999-01-01T00:00:00.123Z")


def test_a_time_in_the_past_means_now(app: Covey) -> None:
    assert app.task(functions.add).using(run_at=datetime(1900, 1, 1, tzinfo=UTC)).enqueue(1).state == "pending"


def test_a_delay_is_seconds_or_a_timedelta(app: Covey) -> None:
    task = app.task(functions.add)
    for delay in (3600, timedelta(hours=1)):
        view = task.using(delay=delay).enqueue(1).view
        assert between(view.created_at, view.run_at) == pytest.approx(3600, abs=0.002)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run_at": datetime(2999, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"run_at": "2999-01-01"}, "pass a datetime"),
        ({"run_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))}, "after the year 9999"),
        ({"run_at": SOON, "delay": 1}, "give one of them"),
        ({"delay": -1}, "0 or more"),
        ({"delay": math.nan}, "0 or more"),
        ({"delay": "1h"}, "number of seconds"),
        ({"key": "123"}, "digits only"),
        ({"key": ""}, "key"),
        ({"key": 5}, "pass a string"),
        ({"if_exists": "ignore"}, "'error' or 'return'"),
        ({"max_attempts": 0}, "counts all runs"),
        ({"timeout": 0}, "above 0"),
        ({"eta": 5}, "no option 'eta'; known: "),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_is_stored(app: Covey, options: dict[str, Any], message: str) -> None:
    task = app.task(functions.add)
    with pytest.raises(InvalidInput, match=message):
        task.using(**options).enqueue(1)
    assert stored(app) == 0


def test_a_key_is_taken_once(app: Covey) -> None:
    task = app.task(functions.add)
    first = task.using(key="a").enqueue(1)
    with pytest.raises(Duplicate) as refused:
        task.using(key="a").enqueue(2)
    assert refused.value.job_id == first.id
    again = task.using(key="a", if_exists="return").enqueue(3)
    assert (again.id, again.existing, again.key) == (first.id, True, "a")
    assert again.view.args == [[1], {}]
    assert not first.existing


def test_a_unique_key_is_free_again_once_its_job_was_claimed(app: Covey, worker: HandPool) -> None:
    task = app.task(functions.add).using(unique_key="daily", if_exists="return")
    first = task.enqueue(1)
    assert task.enqueue(2).id == first.id
    worker.claim_one()
    assert task.enqueue(3).id != first.id


# ── names, and who may import them ──────────────────────────────────────────────────────────────────────────────────


def test_a_task_of_a_script_is_refused_with_advice(app: Covey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions.add, "__module__", "__main__")
    task = app.task(functions.add)
    assert task(1) == 2
    with pytest.raises(InvalidInput, match="put them into a module"):
        task.enqueue(1)
    assert stored(app) == 0


def test_a_registered_task_can_be_enqueued_by_name(app: Covey) -> None:
    app.task(queue="net")(functions.fetch)
    view = app.enqueue("tests.app.functions.fetch", "u").view
    assert (view.queue, view.kind, view.args) == ("net", "async", [["u"], {}])
    with pytest.raises(InvalidInput, match="missing a required argument"):
        app.enqueue("tests.app.functions.fetch")


def test_an_unknown_task_can_be_enqueued_by_name(app: Covey) -> None:
    view = app.enqueue("elsewhere.task", 1, b=2).view
    assert (view.task, view.kind, view.args) == ("elsewhere.task", "sync", [[1], {"b": 2}])
    assert app.enqueue("elsewhere.task").view.args is None


def test_a_name_that_is_none_is_refused(app: Covey) -> None:
    for name in ("", "shell", 5, app.task(functions.add)):
        with pytest.raises(InvalidInput):
            app.enqueue(name, 1)  # type: ignore[arg-type]
    assert stored(app) == 0


# ── many at once ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_are_stored_in_order(app: Covey) -> None:
    task = app.task(functions.add)
    jobs = task.enqueue_many(task.call(n) for n in range(100))
    assert [job.view.args for job in jobs] == [[[n], {}] for n in range(100)]
    assert [job.id for job in jobs] == list(range(jobs[0].id, jobs[0].id + 100))
    assert task.enqueue_many([]) == []


def test_many_are_stored_or_none(app: Covey) -> None:
    task = app.task(functions.add)
    task.using(key="taken").enqueue(0)
    with pytest.raises(Duplicate):
        task.enqueue_many([task.call(1), task.using(key="taken").call(2)])
    assert stored(app) == 1


def test_a_calls_own_options_win_over_those_of_the_many(app: Covey) -> None:
    task = app.task(queue="a")(functions.add)
    jobs = task.using(queue="b", priority=5).enqueue_many([task.call(1), task.using(queue="c").call(2)])
    assert [(job.view.queue, job.view.priority) for job in jobs] == [("b", 5), ("c", 5)]
    (job,) = task.enqueue_many([task.using(queue="d").call(3)])
    assert job.view.queue == "d"


def test_a_call_of_another_task_is_refused(app: Covey) -> None:
    add, other = app.task(functions.add), app.task(functions.other_add)
    with pytest.raises(InvalidInput, match="to mix tasks"):
        add.enqueue_many([other.call(1)])


def test_async_code_enqueues_many_at_a_time(app: Covey) -> None:
    add = app.task(functions.add)

    async def go() -> set[int]:
        jobs = await asyncio.gather(*(add.using(priority=n).aenqueue(n, b=2) for n in range(10)))
        return {job.id for job in jobs}

    assert len(asyncio.run(go())) == stored(app) == 10


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_command_is_stored_with_the_default_time_out_and_this_directory(app: Covey) -> None:
    view = app.shell("echo hello").view
    assert (view.task, view.kind, view.command, view.args) == (
        "shell",
        "command",
        "echo hello",
        {"command": "echo hello"},
    )
    assert (view.timeout, view.cwd) == (3600, str(Path.cwd()))


def test_a_command_takes_options(app: Covey, tmp_path: Path) -> None:
    job = app.shell(
        ["printf", "%s", "a b"], timeout=900, cwd=tmp_path, env={"A": "1"}, queue="video", key="cut", max_attempts=1
    )
    view = job.view
    assert view.args == {"argv": ["printf", "%s", "a b"], "env": {"A": "1"}}
    assert (view.command, view.timeout, view.cwd) == ("printf %s 'a b'", 900, str(tmp_path))
    assert (view.queue, view.key, view.max_attempts) == ("video", "cut", 1)


def test_a_command_without_a_time_out(app: Covey) -> None:
    assert app.shell("true", timeout=math.inf).view.timeout is None


def test_a_relative_directory_means_the_callers(app: Covey) -> None:
    assert app.shell("true", cwd="sub").view.cwd == str(Path.cwd() / "sub")


def test_a_missing_job_is_not_found(app: Covey) -> None:
    for ref in (99, "99", "nobody"):
        with pytest.raises(NotFound):
            app.job(ref)
    for bad in (None, 1.5, True):
        with pytest.raises(InvalidInput):
            app.job(bad)  # type: ignore[arg-type]
