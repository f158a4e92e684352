"""A function that can be queued: called plainly it runs here and now, enqueued it runs in a worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, Unpack, overload

from msgspec.structs import replace

from . import settings as config
from .arguments import Arguments, check_function
from .core.check import check_spec
from .core.specs import task_spec
from .errors import InvalidInput
from .job import Call, Job
from .options import JobOptions, TaskOptions, job_options, task_options
from .transaction import Transaction, asubmit, submit
from .worker.children import Children
from .worker.context import Context

if TYPE_CHECKING:
    from .connection import Connection
    from .core.model import Kind, Spec

P = ParamSpec("P")
R = TypeVar("R")

DEFAULTS = config.effective({}, {})


class Variant(Generic[P, R]):
    """A task together with how its next jobs are to be run. Made by ``task.using(…)``."""

    def __init__(self, task: Task[P, R], connection: Connection, given: dict[str, Any], tx: object) -> None:
        self.task = task
        self.connection = connection
        self._given = given
        self._tx = tx
        self._template: tuple[Mapping[str, Any], Spec] | None = None

    def using(self, *, tx: object = None, **options: Unpack[JobOptions]) -> Variant[P, R]:
        """The same task with these options; what is not named stays as it was.

        ``tx``: of ``app.transaction()``, or on PostgreSQL a connection of your own with its open transaction.
        """
        return Variant(self.task, self.connection, self._given | job_options(options), self._tx if tx is None else tx)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The arguments are checked and encoded; nothing is enqueued yet."""
        return Call(self, self.task.arguments.encode(args, kwargs))

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The job is on disk (inside a transaction: will be when that ends)."""
        spec = self.spec(self.task.arguments.encode(args, kwargs))
        return submit(self.connection, (spec,), self._tx)[0]

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Like `enqueue`; the event loop goes on while the disk is written."""
        import asyncio  # takes longer to import than all of Covey, and most programs that enqueue are not async

        if self._tx is None or isinstance(self._tx, Transaction):
            return await asyncio.to_thread(self.enqueue, *args, **kwargs)
        return await asubmit(self.connection, self._tx, lambda tx: self.using(tx=tx).enqueue(*args, **kwargs))

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """All of the calls are on disk, in order, or none is. What a call was made with wins over what this one has."""
        return submit(self.connection, [self._spec_of(call) for call in calls], self._tx)

    @property
    def options(self) -> Mapping[str, Any]:
        """What was said of the task and of this variant of it, in the words of a Spec."""
        return self.task.defaults | self._given if self._given else self.task.defaults

    def takes(self, name: str) -> bool:
        """Whether the function has a parameter of that name, or takes any."""
        return self.task.arguments.takes(name)

    def spec(self, args: str | None, settings: Mapping[str, Any] | None = None) -> Spec:
        """The request to run it with these arguments (JSON text). Without settings, the queue is asked for them."""
        settings = self.connection.settings() if settings is None else settings
        if self._template is None or self._template[0] is not settings:
            self._template = settings, self._make_template(settings)
        template = self._template[1]
        return template if args is None else replace(template, args=args)

    def _make_template(self, settings: Mapping[str, Any]) -> Spec:
        task = self.task
        if task.name.startswith("__main__."):
            raise InvalidInput(
                f"{task.name}: a worker cannot import a script's own tasks; put them into a module and import that, "
                "as in `from tasks import app`"
            )
        joins = task.joined is not None
        return task_spec(task.name, settings=settings, kind=task.kind, joins=joins, **self.options)

    def _spec_of(self, call: Call[R]) -> Spec:
        source = call.source
        if not isinstance(source, Variant) or source.task is not self.task:
            raise InvalidInput(f"{call!r} is not a call of {self.task.name}; use app.transaction() to mix tasks")
        if source is self or not source._given:
            return self.spec(call.args)
        return (
            source if not self._given else Variant(self.task, self.connection, self._given | source._given, None)
        ).spec(call.args)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.task.name}>"


class Task(Variant[P, R]):
    """Made by ``@app.task``. A Context parameter is filled in by whoever runs it; callers leave it out."""

    __name__: str

    def __init__(self, connection: Connection, fn: Callable[..., Any], name: str, defaults: dict[str, Any]) -> None:
        super().__init__(self, connection, {}, None)
        self.fn = fn
        self.name = name
        self.defaults = defaults
        self.is_async = inspect.iscoroutinefunction(fn)
        self.kind: Kind = "async" if self.is_async else "sync"
        self.arguments = Arguments(name, fn)
        self.wants_context = self.arguments.wants_context
        self.joined: Joined | None = None
        check_spec(task_spec(name, settings=DEFAULTS, kind=self.kind, **defaults))
        functools.update_wrapper(self, fn)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function here and now; nothing is queued."""
        return self._run(args, kwargs)  # type: ignore[no-any-return]

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (
            self.wants_context
            and not (args and isinstance(args[0], Context))
            and self.arguments.context_name not in kwargs
        ):
            args = (Context.detached(self.name), *args)
        return self.fn(*args, **kwargs)

    @overload
    def join(self, fn: Callable[[Context, Children], Coroutine[Any, Any, R]], /) -> Callable[..., Any]: ...
    @overload
    def join(self, fn: Callable[[Children], Coroutine[Any, Any, R]], /) -> Callable[..., Any]: ...
    @overload
    def join(self, fn: Callable[[Context, Children], R], /) -> Callable[..., Any]: ...
    @overload
    def join(self, fn: Callable[[Children], R], /) -> Callable[..., Any]: ...

    def join(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """``@task.join``: runs once the children have ended; what it returns is the job's result."""
        check_function(fn)
        if self.joined is not None and not _is_same(self.joined.fn, fn):
            raise InvalidInput(f"{self.name} has a join already, {self.joined.fn.__qualname__}; a task has one")
        arguments = Arguments(f"the join of {self.name}", fn)
        if len(arguments.signature.parameters) != 1:
            raise InvalidInput(
                f"the join of {self.name} takes {arguments.signature}; it is given the children and, before them, "
                "a Context if it wants one"
            )
        self.joined = Joined(fn, arguments.wants_context)
        self._template = None
        return fn

    def __reduce__(self) -> str:
        # By its name, as a function is: process pools pickle what they are to call.
        return self.fn.__qualname__


class AsyncTask(Task[P, R]):
    """A task made of an ``async def``: a plain call gives a coroutine, a job gives what that returns."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        """A coroutine that runs the function; nothing is queued."""
        return self._run(args, kwargs)  # type: ignore[no-any-return]


class Joined(NamedTuple):
    """The second phase of a task."""

    fn: Callable[..., Any]
    wants_context: bool


class TaskDecorator:
    """``@app.task`` and ``@app.task(…)``: the function is a task of the app."""

    def __init__(
        self,
        connection: Connection,
        tasks: dict[str, Task[..., Any]],
        defaults: dict[str, Any],
        name: str | None = None,
    ) -> None:
        self._connection, self._tasks, self._defaults, self._name = connection, tasks, defaults, name

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def __call__(self, fn: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
        if fn is None:
            defaults = self._defaults | task_options(options)
            return TaskDecorator(self._connection, self._tasks, defaults, name or self._name)
        if name is not None or options:
            raise InvalidInput(
                "app.task takes a function or options, not both; write @app.task(queue=…) above the function"
            )
        return self._register(fn)

    def _register(self, fn: Callable[..., Any]) -> Task[..., Any]:
        check_function(fn)
        name = self._name or f"{fn.__module__}.{fn.__qualname__}"
        make = AsyncTask if inspect.iscoroutinefunction(fn) else Task
        task: Task[..., Any] = make(self._connection, fn, name, self._defaults)
        if (other := self._tasks.get(name)) is not None and not _is_same(other.fn, fn):
            raise InvalidInput(f"the task {name!r} exists already, made of another function; rename one, or pass name=")
        self._tasks[name] = task
        return task


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether they come from the same line, as after a reload of their module."""
    a, b = one.__code__, other.__code__
    return (a.co_filename, a.co_firstlineno, a.co_qualname) == (b.co_filename, b.co_firstlineno, b.co_qualname)
