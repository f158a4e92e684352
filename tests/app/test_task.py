"""What can be a task, what it is called, and what a plain call does."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from covey import Context, Covey, InvalidInput
from covey.task import AsyncTask, Task

from . import functions


@pytest.fixture
def app() -> Covey:
    """Declaring tasks opens nothing, so these tests need no queue."""
    return Covey("memory:never-opened")


def test_a_task_is_named_after_its_module_and_function(app: Covey) -> None:
    task = app.task(functions.add)
    assert task.name == "tests.app.functions.add"
    assert app.tasks == {"tests.app.functions.add": task}


def test_a_name_can_be_given(app: Covey) -> None:
    task = app.task(name="sum")(functions.add)
    assert (task.name, list(app.tasks)) == ("sum", ["sum"])


def test_a_plain_call_runs_the_function(app: Covey) -> None:
    assert app.task(functions.add)(2, b=3) == 5


def test_a_task_looks_like_its_function(app: Covey) -> None:
    task = app.task(functions.add)
    assert (task.__name__, task.__doc__, task.__module__) == ("add", functions.add.__doc__, "tests.app.functions")


def test_a_task_is_pickled_by_its_name(app: Covey, monkeypatch: pytest.MonkeyPatch) -> None:
    task = app.task(functions.add)
    monkeypatch.setattr(functions, "add", task)
    assert pickle.loads(pickle.dumps(task)) is task


def test_sync_and_async_are_told_apart(app: Covey) -> None:
    add, fetch = app.task(functions.add), app.task(functions.fetch)
    assert (type(add), add.kind, add.is_async) == (Task, "sync", False)
    assert (type(fetch), fetch.kind, fetch.is_async) == (AsyncTask, "async", True)


def test_a_plain_call_of_an_async_task_is_awaited(app: Covey) -> None:
    assert asyncio.run(app.task(functions.fetch)("abc")) == 3


# ── Context ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["with_context", "with_optional_context", "with_unresolvable_annotation"])
def test_a_context_as_first_parameter_is_wanted_and_hidden(app: Covey, name: str) -> None:
    task = app.task(getattr(functions, name))
    assert task.wants_context
    assert "ctx" not in task.arguments.signature.parameters


def test_no_context_is_wanted_where_none_is_named(app: Covey) -> None:
    assert not app.task(functions.add).wants_context
    assert not app.task(functions.nothing).wants_context


def test_a_plain_call_is_given_a_detached_context(app: Covey) -> None:
    assert app.task(functions.with_context)("ann") == "tests.app.functions.with_context 0 ann"
    assert asyncio.run(app.task(functions.fetch_with_context)("u")) == 1


def test_a_plain_call_may_bring_its_own_context(app: Covey) -> None:
    context = Context(job_id=7, attempt=1, max_attempts=3, task="mine", queue="default")
    task = app.task(functions.with_context)
    assert task(context, "ann") == "mine 7 ann"  # type: ignore[call-arg, arg-type]
    assert task(ctx=context, name="ann") == "mine 7 ann"  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["late_context", "keyword_context"])
def test_a_context_elsewhere_is_refused(app: Covey, name: str) -> None:
    with pytest.raises(InvalidInput, match="must be the first parameter"):
        app.task(getattr(functions, name))


# ── what cannot be a task ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("given", [{}, {"name": "named"}])
def test_a_lambda_is_refused_even_with_a_name(app: Covey, given: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="workers cannot import it"):
        app.task(**given)(functions.identity)  # type: ignore[call-overload]


@pytest.mark.parametrize("given", [{}, {"name": "named"}])
def test_a_nested_function_is_refused_even_with_a_name(app: Covey, given: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="workers cannot import it"):
        app.task(**given)(functions.make_nested())  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["words", "awords"])
def test_a_generator_is_refused(app: Covey, name: str) -> None:
    with pytest.raises(InvalidInput, match="return a list"):
        app.task(getattr(functions, name))


@pytest.mark.parametrize("thing", [len, 5, "add", functions.Owner])
def test_what_is_no_function_is_refused(app: Covey, thing: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be a task"):
        app.task(thing)  # type: ignore[call-overload]


def test_a_static_method_may_be_a_task(app: Covey) -> None:
    assert app.task(functions.Owner.static).name == "tests.app.functions.Owner.static"


def test_two_functions_under_one_name_are_refused(app: Covey) -> None:
    first = app.task(name="sum")(functions.add)
    with pytest.raises(InvalidInput, match="'sum' exists already"):
        app.task(name="sum")(functions.other_add)
    assert app.tasks["sum"] is first


def test_the_same_function_twice_is_no_conflict(app: Covey) -> None:
    app.task(functions.add)
    app.task(functions.add)
    assert len(app.tasks) == 1


def test_the_built_in_name_is_refused(app: Covey) -> None:
    with pytest.raises(InvalidInput, match="built-in"):
        app.task(name="shell")(functions.add)
    assert not app.tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "counts all runs"),
        ({"max_attempts": 2, "max_retries": 3}, "the same thing"),
        ({"timeout": -1}, "above 0"),
        ({"timeout": "10"}, "number of seconds"),
        ({"queue": ""}, "queue"),
        ({"queue": 5}, "pass a string"),
        ({"priority": 1.5}, "whole number"),
        ({"backoff_base": 0.5}, "at least 1"),
        ({"backoff_base": "2"}, "a number"),
        ({"jitter": "yes"}, "true or false"),
        ({"labels": {"a": 1}}, "pass a string"),
        ({"retries": 3}, "no option 'retries'; known: queue"),
        ({"key": "a"}, "no option 'key'"),
    ],
)
def test_a_wrong_option_is_refused_when_the_task_is_declared(
    app: Covey, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        app.task(**options)(functions.add)  # type: ignore[call-overload]
    assert not app.tasks


def test_options_beside_a_function_are_refused(app: Covey) -> None:
    with pytest.raises(InvalidInput, match="not both"):
        app.task(functions.add, queue="a")  # type: ignore[call-overload]
