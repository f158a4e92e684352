"""From a claim to a call and back: which function runs, with what, and what it asked for besides its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..core.codec import decode
from ..core.model import Claim, Report
from ..errors import Abort
from .children import Children
from .context import Context


class RunnableJoin(Protocol):
    """The second phase of a task."""

    @property
    def fn(self) -> Callable[..., Any]: ...

    @property
    def wants_context(self) -> bool: ...


class RunnableTask(Protocol):
    """What a worker needs to know of a task."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    wants_context: bool

    @property
    def joined(self) -> RunnableJoin | None: ...


Invocation = Callable[[], Any]


def first_call(task: RunnableTask, claim: Claim, context: Context) -> Invocation:
    """What the claim asks to be run: the function with its arguments, or the join with the children's outcomes."""
    if claim.phase == "join":
        if task.joined is None:
            raise Abort(f"{task.name} has no join any more; restore it, or retry the job with --all")
        return join_call(task.joined, context, Children.from_json(claim.children))
    args, kwargs = decode(claim.args) if claim.args else ((), {})
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


def set_spawned(told: Report, task: RunnableTask, context: Context) -> None:
    """A success brings along what it asked for; anything else has spawned nothing."""
    spawns = context.spawns
    asked = spawns.take()
    if told.outcome == "success" and asked:
        told.spawned = asked
        if spawns.has_children:
            told.child_mode, told.joins = spawns.mode, task.joined is not None
