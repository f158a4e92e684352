"""What a run asks for: recorded, checked, and handed over with its success only."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from covey import Child, Children, Context, Covey, InvalidInput, NotFound, Refused, SpawnRefused, Task
from covey.core.model import Claim, Report
from covey.worker.execution import first_call, second_call, set_spawned
from covey.worker.spawns import MAX_BYTES
from covey.worker.sync_worker import set_failure

from . import functions


@pytest.fixture
def tasks() -> dict[str, Task[..., Any]]:
    """Tasks of an app whose queue cannot be opened: to spawn, nobody may need it."""
    app = Covey("/nonexistent/queue.db")
    return {
        fn.__name__: app.task(fn) for fn in (functions.add, functions.nothing, functions.with_context, functions.keyed)
    } | {"slow": app.task(queue="slow", priority=7)(functions.other_add)}


def claim(**fields: Any) -> Claim:
    plain = Claim(7, 3, "shop.add", "sync", 1, 3, None, "default", None, None, 0, 0, None, root_id=7)
    for name, value in fields.items():
        setattr(plain, name, value)
    return plain


def context(**fields: Any) -> Context:
    return Context.from_claim(claim(**fields))


def test_a_child_is_recorded_with_its_arguments_as_json(tasks: dict[str, Any]) -> None:
    ctx = context()
    first = ctx.spawn(tasks["add"], 1, b=2)
    second = ctx.spawn(tasks["nothing"])
    assert (first.number, second.number, first.task, first.key) == (0, 1, "tests.app.functions.add", None)
    child, _ = ctx.spawned
    assert (child.relation, child.spec.args, child.queue, child.priority) == ("child", '[[1],{"b":2}]', None, None)


def test_options_can_stand_beside_the_arguments_or_in_using(tasks: dict[str, Any]) -> None:
    ctx = context()
    ctx.spawn(tasks["add"], 1, key="a", queue="q", priority=3)
    ctx.spawn(tasks["add"].using(key="b", queue="r", priority=4, timeout=9), 1)
    one, other = ctx.spawned
    assert (one.spec.key, one.queue, one.priority) == ("a", "q", 3)
    assert (other.spec.key, other.queue, other.priority, other.spec.policy.timeout_s) == ("b", "r", 4, 9)


def test_a_command_s_directory_and_time_may_be_said_as_everywhere(tmp_path: Path) -> None:
    ctx = context(cwd="/srv")
    ctx.spawn_shell("true", cwd="below", timeout=timedelta(minutes=2))
    ctx.spawn_shell("true", cwd=tmp_path)
    ctx.spawn_shell("true")
    first, second, third = (spawn.spec for spawn in ctx.spawned)
    assert (first.cwd, first.policy.timeout_s) == ("/srv/below", 120)
    assert (second.cwd, third.cwd) == (str(tmp_path), "/srv")


def test_an_exit_whose_code_cannot_be_shown_is_told_all_the_same() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    told = Report(7, 3, "success")
    set_failure(told, SystemExit(Odd()))
    assert (told.outcome, told.error) == ("failure", "the task called sys.exit(…)")


@pytest.mark.parametrize(
    "odd", [{"priority": "5"}, {"priority": 10**30}, {"queue": "no queue"}, {"on_error": "x"}, {"key": ""}]
)
def test_what_is_no_option_is_refused_before_it_is_recorded(tasks: dict[str, Any], odd: dict[str, Any]) -> None:
    """Later nobody could read the report that it is in."""
    ctx = context()
    with pytest.raises(InvalidInput):
        ctx.spawn(tasks["add"].using(**odd), 1)
    with pytest.raises(InvalidInput):
        ctx.spawn_many([tasks["add"].call(1), tasks["add"].using(**odd).call(1)])
    assert [spawn.spec.args for spawn in ctx.spawned] == ["[[1],{}]"]


def test_a_child_without_a_queue_of_its_own_inherits_and_one_whose_task_has_one_does_not(tasks: dict[str, Any]) -> None:
    ctx = context()
    ctx.spawn(tasks["slow"], 1)
    ctx.spawn_many([tasks["add"].call(1), tasks["slow"].using(priority=1).call(2)])
    assert [(spawn.queue, spawn.priority) for spawn in ctx.spawned] == [("slow", 7), (None, None), ("slow", 1)]


def test_a_parameter_of_the_function_wins_over_an_option_of_the_same_name(tasks: dict[str, Any]) -> None:
    ctx = context()
    ctx.spawn(tasks["keyed"], key="mine")
    assert (ctx.spawned[0].spec.key, ctx.spawned[0].spec.args) == (None, '[[],{"key":"mine"}]')


def test_wrong_arguments_are_refused_where_they_are_passed(tasks: dict[str, Any]) -> None:
    ctx = context()
    for args, kwargs in (((), {}), ((object(),), {}), ((1,), {"colour": 2}), ((1,), {"key": "1"}), ((1,), {"key": 1})):
        with pytest.raises((InvalidInput, TypeError)):
            ctx.spawn(tasks["add"], *args, **kwargs)
    for bad in ({"queue": "a b"}, {"priority": "high"}, {"mode": "both"}):
        with pytest.raises(InvalidInput):
            ctx.spawn(tasks["add"], 1, **bad)
    with pytest.raises(InvalidInput, match="'success' or 'always'"):
        ctx.after(tasks["add"], 1, when="never")  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="empty"):
        ctx.spawn_shell("")
    assert ctx.spawned == ()


def test_a_job_at_the_last_depth_may_not_spawn_and_is_dead_if_it_tries(tasks: dict[str, Any]) -> None:
    ctx = context(depth=1, max_depth=1, parent_id=3)
    with pytest.raises(SpawnRefused, match="job 7 is at depth 1 and its tree may be 1 deep") as refused:
        ctx.spawn(tasks["add"], 1)
    with pytest.raises(SpawnRefused):
        ctx.spawn_many([])
    told = Report(7, 3, "success")
    set_failure(told, refused.value)
    assert told.outcome == "abort"
    ctx.spawn_sibling(tasks["add"], 1)
    ctx.after(tasks["nothing"])
    assert [spawn.relation for spawn in ctx.spawned] == ["sibling", "after"]


def test_a_refusal_of_something_else_is_an_ordinary_failure() -> None:
    told = Report(7, 3, "success")
    set_failure(told, NotFound("no job 9"))
    assert told.outcome == "failure"


def test_a_root_has_no_siblings(tasks: dict[str, Any]) -> None:
    with pytest.raises(SpawnRefused, match="is a root and has no siblings"):
        context().spawn_sibling(tasks["add"], 1)


def test_children_run_one_way_only(tasks: dict[str, Any]) -> None:
    ctx = context()
    ctx.spawn(tasks["add"], 1)
    ctx.spawn(tasks["add"], 2, mode="serial")
    ctx.spawn_shell("true")
    with pytest.raises(SpawnRefused, match="has serial children already, so concurrent is refused"):
        ctx.spawn(tasks["add"], 3, mode="concurrent")
    assert ctx.spawns.mode == "serial"
    with pytest.raises(SpawnRefused, match="has concurrent children already"):
        context(child_mode="concurrent").spawn_many([], mode="serial")


def test_an_uncle_has_a_name_that_many_trees_share(tasks: dict[str, Any]) -> None:
    ctx = context()
    ctx.after(tasks["add"], 1, unique_key="flush", when="always")
    (uncle,) = ctx.spawned
    assert (uncle.relation, uncle.spec.unique_key, uncle.when) == ("after", "flush", "always")
    assert not ctx.spawns.has_children


def test_a_command_runs_where_its_parent_runs() -> None:
    ctx = context(cwd="/srv")
    ctx.spawn_shell(["ls", "-l"], key="ls", env={"A": "b"}, timeout=3)
    ctx.spawn_shell("true", cwd="/tmp")
    one, other = ctx.spawned
    assert (one.spec.kind, one.spec.cwd, one.spec.key, one.spec.policy.timeout_s) == ("command", "/srv", "ls", 3)
    assert other.spec.cwd == "/tmp"


def test_spawned_jobs_get_the_settings_of_the_pool(tasks: dict[str, Any]) -> None:
    from covey import settings as config

    settings = config.effective({"max_attempts": "9"}, {})
    ctx = Context.from_claim(claim(), settings=settings)
    ctx.spawn(tasks["add"], 1)
    ctx.spawn(tasks["add"].using(max_attempts=2), 1)
    ctx.spawn_shell("true")
    assert [spawn.spec.policy.max_attempts for spawn in ctx.spawned] == [9, 2, 9]


def test_there_is_a_limit_to_what_one_run_can_ask_for(tasks: dict[str, Any]) -> None:
    ctx = context()
    big = tasks["with_context"].call("x" * 1_000_000)
    with pytest.raises(SpawnRefused, match="128 MiB of arguments"):
        ctx.spawn_many([big] * (MAX_BYTES // 1_000_000 + 1))


def test_only_a_success_brings_its_children_along(tasks: dict[str, Any]) -> None:
    for outcome, expected in (("success", 1), ("failure", 0), ("abort", 0), ("snooze", 0), ("stopped", 0)):
        ctx = context()
        ctx.spawn(tasks["add"], 1, mode="serial")
        told = Report(7, 3, outcome)  # type: ignore[arg-type]
        set_spawned(told, tasks["add"], ctx)
        assert len(told.spawned or ()) == expected
        assert (told.child_mode, told.joins) == (("serial", False) if expected else (None, None))


def test_a_thread_that_outlives_the_run_can_spawn_nothing(tasks: dict[str, Any]) -> None:
    ctx = context()
    set_spawned(Report(7, 3, "success"), tasks["add"], ctx)
    with pytest.raises(SpawnRefused, match="has ended"):
        ctx.spawn(tasks["add"], 1)


def test_a_detached_context_records_and_nothing_comes_of_it(tasks: dict[str, Any]) -> None:
    ctx = Context.detached()
    ctx.spawn(tasks["add"], 1)
    assert (len(ctx.spawned), ctx.parent, ctx.root_id, ctx.depth, ctx.failed_siblings()) == (1, None, 0, 0, [])


def test_failed_siblings_come_with_the_claim() -> None:
    ctx = context(failed_siblings='[{"id":5,"key":"a","task":"t","state":"dead","error":"boom"}]')
    assert ctx.failed_siblings() == [Child(5, "a", "t", "dead", error="boom")]


# ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def joined(fn: Any = functions.merge) -> Task[..., Any]:
    task: Task[..., Any] = Covey("memory:").task(functions.with_context)
    task.join(fn)
    return task


def test_the_second_phase_is_given_the_outcomes() -> None:
    outcomes = (
        '[{"id":5,"key":"a","task":"t","state":"completed","result":3},{"id":6,"key":null,"task":"t","state":"dead"}]'
    )
    second = claim(phase="join", children=outcomes)
    ctx = Context.from_claim(second)
    assert first_call(joined(), second, ctx)() == {"a": 3, None: None}
    assert second_call(joined(), second, ctx) is None


def test_without_children_the_join_runs_in_the_same_attempt_and_may_not_spawn(tasks: dict[str, Any]) -> None:
    ctx = context()
    call = second_call(joined(), claim(), ctx)
    assert call is not None
    assert call() == {}
    with pytest.raises(SpawnRefused, match="the join of job 7 may not spawn"):
        ctx.spawn(tasks["add"], 1)
    ctx.after(tasks["nothing"])


def test_with_children_the_join_comes_later(tasks: dict[str, Any]) -> None:
    ctx = context()
    ctx.spawn(tasks["add"], 1)
    assert second_call(joined(), claim(), ctx) is None
    told = Report(7, 3, "success")
    set_spawned(told, joined(), ctx)
    assert told.joins is True


def test_a_task_says_at_enqueue_that_it_joins(app: Covey) -> None:
    task = app.task(functions.add)
    assert not task.spec("[[1],{}]").joins
    task.join(functions.merge_plainly)
    assert task.spec("[[1],{}]").joins
    assert task.using(on_error="collect", mode="serial", tree_timeout=60).spec(None).on_error == "collect"


def test_a_join_must_look_like_one() -> None:
    task = Covey("memory:").task(functions.add)
    for bad in (functions.nothing, functions.other_add, functions.identity):
        with pytest.raises(InvalidInput):
            task.join(bad)
    task.join(functions.merge)
    task.join(functions.merge)
    with pytest.raises(InvalidInput, match="has a join already, merge; a task has one"):
        task.join(functions.merge_plainly)


def test_tree_options_are_checked_when_the_task_is_made() -> None:
    app = Covey("memory:")
    for bad in ({"on_error": "maybe"}, {"mode": "both"}, {"tree_timeout": 0}, {"tree_timeout": "soon"}):
        with pytest.raises(InvalidInput):
            app.task(**bad)(functions.add)


def test_children_are_found_by_key_and_by_how_they_ended() -> None:
    children = Children(
        [Child(1, "a", "t", "completed", 3), Child(2, None, "t", "dead", error="x"), Child(3, "c", "t", "completed", 4)]
    )
    assert (children.by_key("c").id, children.results(), [c.id for c in children.failed()]) == (3, [3, 4], [2])
    with pytest.raises(NotFound, match="no child has the key 'z'"):
        children.by_key("z")
    with pytest.raises(Refused, match="too large together"):
        Children([Child(1, None, "t", "completed", left_out=True)]).results()
