"""From a claim to a call and back: which function runs, with what, and what it asked for besides its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..core.codec import clean, decode, encode
from ..core.model import Claim, Report
from ..errors import Abort
from .context import Children, Context


class RunnableJoin(Protocol):
    """The second phase of a task."""

    @property
    def fn(self) -> Callable[..., Any]: ...

    @property
    def wants_context(self) -> bool: ...


class RunnableCache(Protocol):
    """What a cached task depends on."""

    def parts(self, args: str | None) -> str: ...


class RunnableTask(Protocol):
    """What a worker needs to know of a task."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    wants_context: bool

    @property
    def joined(self) -> RunnableJoin | None: ...

    @property
    def cached(self) -> RunnableCache | None: ...


Invocation = Callable[[], Any]
CHANGED = "what it depends on changed while it ran"


def first_call(task: RunnableTask, claim: Claim, context: Context) -> Invocation:
    """What the claim asks to be run: the function with its arguments, or the join with the children's outcomes."""
    if claim.phase == "join":
        if task.joined is None:
            raise Abort(f"{task.name} has no join any more; restore it, or retry the job with --all")
        return join_call(task.joined, context, Children.from_json(claim.children))
    args, kwargs, *_ = decode(claim.args) if claim.args else ((), {})  # behind them: its tick, see Context.tick
    if task.wants_context:
        args = (context, *args)
    return lambda: task.fn(*args, **kwargs)


def second_call(task: RunnableTask, claim: Claim, context: Context) -> Invocation | None:
    """The join, if it is due in the same attempt: the function has spawned no children to wait for."""
    if task.joined is None or claim.phase == "join" or context.spawns.has_children:
        return None
    context.spawns.joining = True
    return join_call(task.joined, context, Children())


def join_call(joined: RunnableJoin, context: Context, children: Children) -> Invocation:
    if joined.wants_context:
        return lambda: joined.fn(context, children)
    return lambda: joined.fn(children)


def depends_on(claim: Claim, parts: Callable[[str | None], str] | None) -> str | None:
    """Of a job with a key: what its run depends on, as it is here and now; why that cannot be told, if it cannot."""
    if claim.cache_key is None or parts is None:
        return None
    try:
        return parts(claim.args)
    except Exception as error:
        return encode({"error": clean(str(error))[:1000]}, what="what runs")


def set_ran(told: Report, before: str | None, after: str | None) -> None:
    """A success says what ran here: only under the key of that may it be kept."""
    if told.outcome == "success" and before is not None:
        told.ran = before if before == after else encode({"error": CHANGED}, what="what ran")


def set_spawned(told: Report, task: RunnableTask, context: Context) -> None:
    """A success brings along what it asked for; anything else has spawned nothing."""
    spawns = context.spawns
    asked = spawns.take()
    if told.outcome == "success" and asked:
        told.spawned = asked
        if spawns.has_children:
            told.child_mode, told.joins = spawns.mode, task.joined is not None
