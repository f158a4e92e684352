"""The result cache with real workers: tasks, coroutines and commands; code that is edited under a running pool."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from covey import Covey, code_digest
from covey.core.view import JobView
from covey.testing import until
from tests.kit.running import Yard

SERVED = ("test_what_ran_in_a_worker_is_not_run_again",)
TASKS = """
import os
from covey import Cache, Context, Covey
import helpers_of_{name}

app = Covey()

@app.task(cache=True)
def score(x, n=3):
    print("scored")
    return [os.getpid(), x * n + helpers_of_{name}.STEP]

@app.task(cache=Cache(version="1"))
async def later(x):
    return x

@app.task(cache=Cache(env=["FLAVOUR"]))
def taste():
    return os.environ.get("FLAVOUR")

@app.task(cache=True)
def tree(ctx: Context):
    ctx.spawn(score, 1)

@app.task
def parent(ctx: Context):
    ctx.spawn_many([score.call(5), score.call(5), score.call(6)])
"""


@pytest.fixture
def tasks(tmp_path: Path, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ModuleType]]:
    """Writes an app of its own and imports it here, as a producer would."""
    name = f"n{abs(hash(str(tmp_path)))}"
    monkeypatch.syspath_prepend(yard.home)

    def imported() -> ModuleType:
        for module in (f"tasks_of_{name}", f"helpers_of_{name}"):
            sys.modules.pop(module, None)
        code_digest._found.clear()
        importlib.invalidate_caches()
        module = importlib.import_module(f"tasks_of_{name}")
        module.app._connection = None  # whoever used it would mean another queue
        return module

    (yard.home / f"tasks_of_{name}.py").write_text(TASKS.format(name=name))
    (yard.home / f"helpers_of_{name}.py").write_text("STEP = 1\n")
    imported.helpers = yard.home / f"helpers_of_{name}.py"  # type: ignore[attr-defined]
    imported.app = f"tasks_of_{name}:app"  # type: ignore[attr-defined]
    yield imported
    for module in (f"tasks_of_{name}", f"helpers_of_{name}"):
        sys.modules.pop(module, None)


def put(yard: Yard, task: Any, *args: Any, **kwargs: Any) -> int:
    """The job of a task, in this queue."""
    spec = task.spec(task.task.arguments.encode(args, kwargs))
    return yard.engine.enqueue([spec])[0].id


def result(yard: Yard, task: Any, *args: Any, **kwargs: Any) -> JobView:
    return yard.completes(put(yard, task, *args, **kwargs))[0]


def test_what_ran_in_a_worker_is_not_run_again(yard: Yard, tasks: Any) -> None:
    module = tasks()
    yard.pool(app=tasks.app)
    for task, args in ((module.score, (2,)), (module.later, ("x",))):
        first = result(yard, task, *args)
        again = result(yard, task, *args)
        assert (again.cached_from, again.result, again.worker) == (first.id, first.result, None), yard.engine.why(
            first.id
        )
    same = [
        put(yard, module.score, *args, **kwargs) for args, kwargs in (((2, 3), {}), ((), {"x": 2}), ((2,), {"n": 3}))
    ]
    assert {job.cached_from for job in yard.completes(*same)} == {yard.job(same[0]).cached_from}
    assert yard.attempt(same[0]).stdout == "scored\n"
    assert result(yard, module.score, 2.0).cached_from is None
    off, anew = module.score.using(cache=False), module.score.using(cache="refresh")
    assert result(yard, off, 2).cached_from is None
    refreshed = result(yard, anew, 2)
    assert refreshed.cached_from is None
    assert result(yard, module.score, 2).cached_from == refreshed.id


def test_code_that_is_edited_under_a_running_pool_gives_nothing_old_under_its_new_key(yard: Yard, tasks: Any) -> None:
    old = tasks()
    pool = yard.pool(app=tasks.app)
    first = result(yard, old.score, 1)
    tasks.helpers.write_text("STEP = 100\n")
    new = tasks()
    stale = result(yard, new.score, 1)
    assert (stale.cached_from, stale.result[1]) == (None, 4)  # the pool has the old module still: that is what ran
    assert "module helpers_of_" in yard.engine.why(stale.id).reason
    pool.stop()
    yard.pool(app=tasks.app)
    fresh = result(yard, new.score, 1)
    assert (fresh.cached_from, fresh.result[1]) == (None, 103)
    assert result(yard, new.score, 1).cached_from == fresh.id
    assert result(yard, old.score, 1).cached_from == first.id


def test_a_variable_that_the_worker_has_otherwise_keeps_the_result_back(
    yard: Yard, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tasks()
    yard.pool(app=tasks.app, environ={"FLAVOUR": "plum"})
    monkeypatch.setenv("FLAVOUR", "cherry")
    job = result(yard, module.taste)
    assert job.result == "plum"
    assert "env: FLAVOUR has changed" in yard.engine.why(job.id).reason
    monkeypatch.setenv("FLAVOUR", "plum")
    job = result(yard, module.taste)
    assert result(yard, module.taste).cached_from == job.id


def test_a_cached_task_may_not_spawn_and_children_are_cached(yard: Yard, tasks: Any) -> None:
    module = tasks()
    yard.pool(app=tasks.app)
    dead = yard.is_in(put(yard, module.tree), "dead")
    assert "cached and may not spawn" in str(dead.error)
    parent = result(yard, module.parent)
    children = yard.engine.tree(parent.id).children
    assert len({child.result[0] for child in children if child.args == [[5, 3], {}]}) == 1
    assert [child.cached_from is None for child in children].count(True) == 2


def test_a_cached_command_sees_little_of_its_workers_environment_and_is_replayed(yard: Yard) -> None:
    yard.pool(commands_only=True, environ={"SECRET": "s", "LANG": "de_DE", "TZ": "Asia/Tokyo"})
    with Covey(yard.db) as app:
        line = "echo $SECRET/$LANG/$TZ/$WORD; date +%N; echo oops >&2; exit 0"
        ids = [app.shell(line, cwd=str(yard.home), cache=True, env={"WORD": word}).id for word in ("a", "b")]
        first, other = yard.completes(*ids)
        hit = yard.completes(app.shell(line, cwd=str(yard.home), cache=True, env={"WORD": "a"}).id)[0]
        assert (first.cached_from, other.cached_from, hit.cached_from) == (None, None, first.id)
        assert yard.attempt(first.id).stdout.startswith("/C.UTF-8/UTC/a\n")
        assert yard.attempt(hit.id).stdout == yard.attempt(first.id).stdout
        assert yard.attempt(hit.id).stderr == "oops\n"
        assert hit.exit_code == 0
        failed = yard.is_in(app.shell("exit 3", cache=True, max_attempts=1).id, "dead")
        again = yard.is_in(app.shell("exit 3", cache=True, max_attempts=1).id, "dead")
        assert failed.id != again.id
        assert again.attempts == 1


@pytest.mark.parametrize("point", ["turn.after_reports", "turn.before_commit", "turn.after_commit"])
def test_a_pool_that_is_killed_at_any_step_of_a_report_leaves_a_whole_record_or_none(yard: Yard, point: str) -> None:
    """And nobody who follows it waits for ever: another pool has them."""
    go = yard.home / "go"
    line = f"while [ ! -e {go} ]; do sleep 0.02; done; echo $$"
    with Covey(yard.db) as app:
        ids = [app.shell(line, cwd=str(yard.home), cache=True).id for _ in range(4)]
    doomed = yard.pool(commands_only=True, count=4).started()
    until(lambda: sorted(yard.job(id).state for id in ids) == ["blocked"] * 3 + ["processing"], 20)
    doomed.process.send_signal(signal.SIGKILL)
    go.touch()
    armed = yard.pool(commands_only=True, count=4, failpoints={point: f"once:{yard.home}/fuse:kill"})
    until(lambda: armed.process.poll() is not None, 30, "the failpoint strikes")
    assert yard.engine.cache_status().records in (0, 1)
    yard.pool(commands_only=True, count=1)
    jobs = yard.completes(*ids)
    outputs = {yard.attempt(job.id).stdout for job in jobs}
    assert len(outputs) == 1
    assert [job.cached_from is None for job in jobs].count(True) == 1
