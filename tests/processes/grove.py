"""Tasks that spawn: the trees of test_trees.py."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from traces import leave_trace, wait_for

from covey import Child, Children, Context, Covey, Retry

app = Covey()


@app.task
def leaf(number: int) -> int:
    return number * number


@app.task
async def aleaf(number: int) -> int:
    return number * number


@app.task
def mark(name: str, text: Any) -> None:
    leave_trace(text, name)


@app.task(max_attempts=1)
def break_down(text: str) -> None:
    raise ValueError(text)


# ── parents ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def parent(ctx: Context, count: int) -> int:
    for number in range(count):
        ctx.spawn(leaf, number, key=f"leaf-{number}")
    ctx.info(spawned=count)
    return -1


@parent.join
def sum_up(ctx: Context, children: list[Child]) -> int:
    leave_trace(ctx.job_id, "joins")
    return int(sum(child.result for child in children))


@app.task
async def aparent(ctx: Context, count: int) -> dict[str, Any]:
    ctx.spawn_many(leaf.call(number) for number in range(count))
    ctx.spawn(aleaf, 10, key="ten")
    return {}


@aparent.join
async def asum_up(children: Children) -> dict[str, Any]:
    return {"all": children.results(), "ten": children.by_key("ten").result}


@app.task
def no_join(ctx: Context, count: int) -> str:
    ctx.spawn_many([leaf.call(number) for number in range(count)])
    return "mine"


@app.task
def childless(ctx: Context) -> str:
    return "nobody sees this"


@childless.join
def alone(ctx: Context, children: Children) -> str:
    return f"joined {len(children)} in attempt {ctx.attempt}"


@app.task
def spawn_and_fail(ctx: Context, how: str) -> None:
    ctx.spawn_many(leaf.call(number) for number in range(5))
    ctx.after(mark, "traces", "after")
    if how == "raise":
        raise ValueError("boom")
    if how == "retry":
        raise Retry("again", after=0.01)
    if how == "exit":
        os._exit(1)
    time.sleep(1000)


@app.task
def fails_once(ctx: Context, count: int) -> None:
    for number in range(count):
        ctx.spawn(leaf, number, key=f"leaf-{number}" if ctx.attempt > 1 else f"old-{number}")
    if ctx.attempt == 1:
        raise Retry("once more", after=0.01)


@app.task(backoff_base=1, max_backoff=0.01)
def killed_after(ctx: Context, count: int, k: int) -> int:
    """Its first attempt is killed after k of the spawns."""
    for number in range(count):
        if number == k and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.spawn(leaf, number, key=f"leaf-{number}")
    if count == k and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


@killed_after.join
def by_key(children: Children) -> int:
    return int(sum(children.by_key(f"leaf-{number}").result for number in range(len(children))))


@app.task
def too_deep(ctx: Context, catch: bool) -> str:
    ctx.spawn(spawns_once, catch)
    return ""


@app.task
def spawns_once(ctx: Context, catch: bool) -> str:
    leave_trace(ctx.attempt, "tries")
    try:
        ctx.spawn(leaf, 1)
    except Exception as error:
        if not catch:
            raise
        return f"{type(error).__name__} at depth {ctx.depth} below {ctx.parent} of {ctx.root_id}"
    return ""


@app.task(on_error="collect")
def collect(ctx: Context) -> list[Any]:
    ctx.spawn(leaf, 3)
    ctx.spawn(break_down, "one broke")
    ctx.spawn_shell("exit 3", max_attempts=1)
    return []


@collect.join
def collected(children: Children) -> list[Any]:
    return [[child.state, child.result, child.error] for child in children]


@app.task
def in_order(ctx: Context, name: str, count: int) -> None:
    for number in range(count):
        ctx.spawn(mark, name, number, mode="serial")


@app.task
def wants_more(ctx: Context, name: str, left: int) -> int:
    """Each child asks for one sibling more, until none is left."""
    leave_trace(left, name)
    if ctx.parent is None:
        ctx.spawn(wants_more, name, left)
    elif left > 0:
        ctx.spawn_sibling(wants_more, name, left - 1, key=f"more-{left - 1}")
    return len(ctx.failed_siblings())


@app.task
def one_breaks_first(ctx: Context, name: str) -> None:
    ctx.spawn(break_down, "first")
    ctx.spawn(look_back.using(max_attempts=1000, backoff_base=1, max_backoff=0.01), name)


@app.task
def look_back(ctx: Context, name: str) -> list[str | None]:
    if not ctx.failed_siblings():
        raise Retry("not yet", after=0.05)
    leave_trace(ctx.failed_siblings()[0].error, name)
    return []


@app.task(max_attempts=1)
def breaks_when_told(name: str) -> None:
    wait_for(name)
    raise ValueError(f"told by {name}")


@app.task
def two_at_a_time(ctx: Context, name: str, how: str) -> None:
    """One child breaks while the other one runs and looks."""
    ctx.spawn(breaks_when_told, name)
    ctx.spawn(awatches if how != "sync" else watches, name, how)


@app.task(max_attempts=1)
def watches(ctx: Context, name: str, how: str) -> list[Any]:
    return _until_one_breaks(name, ctx.failed_siblings)


@app.task(max_attempts=1)
async def awatches(ctx: Context, name: str, how: str) -> list[Any]:
    if how == "loop":
        return _until_one_breaks(name, ctx.failed_siblings)
    many = [asyncio.to_thread(_until_one_breaks, name, ctx.failed_siblings) for _ in range(4)]
    return (await asyncio.gather(*many))[0]


def _until_one_breaks(name: str, look: Callable[[], Children]) -> list[Any]:
    before = len(look())
    leave_trace("now", name)
    deadline = time.monotonic() + 40
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [before, *(child.error for child in found)]


@app.task(max_attempts=1)
def forgets_to_look(ctx: Context) -> list[Any]:
    """A forked child has no business in its parent's sockets; and of a root nobody need be asked."""
    pid = os.fork()
    if pid == 0:
        began = time.monotonic()
        os._exit(0 if ctx.failed_siblings() == [] and time.monotonic() - began < 4 else 1)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(ctx.failed_siblings())]


@app.task
def has_a_child_that_forks(ctx: Context) -> None:
    ctx.spawn(forgets_to_look)


@app.task
def with_uncles(ctx: Context, name: str, fails: bool) -> None:
    if fails:
        ctx.spawn(break_down, "x")
    else:
        ctx.spawn(mark, name, "child")
    ctx.after(mark, name, "on success")
    ctx.after(mark, name, "always", when="always")


# ── deep ones ───────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def level(ctx: Context, name: str, deeper: int, width: int) -> None:
    """A command that never ends and leaves its pid, and below it the next level."""
    for _ in range(width):
        ctx.spawn_shell(f"echo $$ >> {name}; sleep 1000 & exec sleep 1000", cwd=os.getcwd())
    if deeper > 1:
        ctx.spawn(level, name, deeper - 1, width)


@app.task(backoff_base=1, max_backoff=0.01)
def nested(ctx: Context, name: str, path: str, widths: list[int]) -> int:
    """A tree of these widths. Every run leaves its path; what it counts is checked against that."""
    leave_trace(f"{path} {ctx.attempt}", name)
    time.sleep(0.005)  # long enough to be killed in
    for number in range(widths[0] if widths else 0):
        ctx.spawn(nested.using(max_attempts=1000), name, f"{path}.{number}", widths[1:], key=f"n-{number}")
    return 1


@nested.join
def count_nodes(children: Children) -> int:
    return 1 + sum(child.result for child in children)


@app.task
def holds_then_spawns(ctx: Context, name: str) -> None:
    ctx.spawn(leaf, 1)
    leave_trace(os.getpid(), f"{name}-runs")
    wait_for(name)


@app.task
def spawn_thousands(ctx: Context, count: int) -> int:
    """How many bytes of memory that took."""
    before = _peak()
    ctx.spawn_many(leaf.call(number) for number in range(count))
    return _peak() - before


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
