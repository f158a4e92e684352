"""A function that can be queued: called plainly it runs here and now, enqueued it runs in a worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, Unpack, overload

from msgspec.structs import replace

from .arguments import Arguments, check_function
from .core.model import CacheAsk
from .core.options import job_options, task_options
from .core.specs import check_spec, task_spec
from .errors import InvalidInput, SpawnRefused
from .job import Call, Job
from .transaction import Transaction, asubmit, submit
from .worker.context import Children, Context

if TYPE_CHECKING:
    from .cache import Asked, Cache, CachedTask
    from .connection import Connection
    from .core.model import Kind, Spec
    from .core.options import JobOptions, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")


class Variant(Generic[P, R]):
    """A task together with how its next jobs are to be run. Made by ``task.using(…)``."""

    def __init__(
        self, task: Task[P, R], connection: Connection, given: dict[str, Any], tx: object, cache: Asked | None = None
    ) -> None:
        self.task = task
        self.connection = connection
        self._given = given
        self._tx = tx
        self._cache = cache
        self._template: Spec | None = None

    def using(self, *, tx: object = None, cache: Asked | None = None, **options: Unpack[JobOptions]) -> Variant[P, R]:
        """The same task with these options; what is not named stays as it was.

        ``tx``: of ``app.transaction()``, or on PostgreSQL a connection of your own with its open transaction.
        ``cache``, of a task that is cached: False neither looks nor keeps, "refresh" runs and keeps the result anew.
        """
        if cache is not None:
            _check_asked(self.task, cache)
        given = self._given | job_options(options)
        return Variant(
            self.task, self.connection, given, self._tx if tx is None else tx, self._cache if cache is None else cache
        )

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

    def takes(self, name: str) -> bool:
        """Whether the function has a parameter of that name, or takes any."""
        return self.task.arguments.takes(name)

    def spec(self, args: str | None) -> Spec:
        """The request to run it with these arguments (JSON text)."""
        if self._template is None:
            self._template = self._make_template()
        spec = self._template if args is None else replace(self._template, args=args)
        cached = self.task.cached
        if cached is None or self._cache is False:
            return spec
        return replace(spec, cache=CacheAsk(cached.parts(args), self._cache == "refresh"))

    def _make_template(self) -> Spec:
        task = self.task
        if task.name.startswith("__main__."):
            raise InvalidInput(
                f"{task.name}: a worker cannot import a script's own tasks; put them into a module and import that, "
                "as in `from tasks import app`"
            )
        joins = task.joined is not None
        return task_spec(task.name, kind=task.kind, joins=joins, **(task.defaults | self._given))

    def _spec_of(self, call: Call[R]) -> Spec:
        source = call.source
        if not isinstance(source, Variant) or source.task is not self.task:
            raise InvalidInput(f"{call!r} is not a call of {self.task.name}; use app.transaction() to mix tasks")
        if source is self or (not source._given and source._cache is None):
            return self.spec(call.args)
        cache = self._cache if source._cache is None else source._cache
        return Variant(self.task, self.connection, self._given | source._given, None, cache).spec(call.args)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.task.name}>"


class Task(Variant[P, R]):
    """Made by ``@app.task``. A Context parameter is filled in by whoever runs it; callers leave it out."""

    __name__: str

    def __init__(
        self,
        connection: Connection,
        fn: Callable[..., Any],
        name: str,
        defaults: dict[str, Any],
        cache: bool | Cache | None = None,
    ) -> None:
        super().__init__(self, connection, {}, None)
        self.fn = fn
        self.name = name
        self.defaults = defaults
        self.is_async = inspect.iscoroutinefunction(fn)
        self.kind: Kind = "async" if self.is_async else "sync"
        self.cached = None if not cache else _cached(name, fn, cache)
        self.arguments = Arguments(name, fn, bound=self.cached is not None)
        self.wants_context = self.arguments.wants_context
        self.joined: Joined | None = None
        check_spec(task_spec(name, kind=self.kind, **defaults))
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
        if self.cached is not None:
            raise SpawnRefused(
                f"{self.name} is cached, so it spawns nothing and has no join; cache the tasks it would spawn"
            )
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
        cache: bool | Cache | None = None,
        schedule: Callable[..., Any] | None = None,
        when: str | Mapping[str, Any] | None = None,
    ) -> None:
        self._connection, self._tasks, self._defaults, self._name = connection, tasks, defaults, name
        self._cache, self._schedule, self._when = cache, schedule, when

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        cache: bool | Cache | None = None,
        schedule: str | Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> TaskDecorator: ...

    def __call__(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        cache: bool | Cache | None = None,
        schedule: str | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        if fn is None:
            defaults = self._defaults | task_options(options)
            cache = self._cache if cache is None else cache
            when = self._when if schedule is None else schedule
            return TaskDecorator(
                self._connection, self._tasks, defaults, name or self._name, cache, self._schedule, when
            )
        if name is not None or options or cache is not None or schedule is not None:
            raise InvalidInput(
                "app.task takes a function or options, not both; write @app.task(queue=…) above the function"
            )
        return self._register(fn)

    def _register(self, fn: Callable[..., Any]) -> Task[..., Any]:
        check_function(fn)
        name = self._name or f"{fn.__module__}.{fn.__qualname__}"
        make = AsyncTask if inspect.iscoroutinefunction(fn) else Task
        task: Task[..., Any] = make(self._connection, fn, name, self._defaults, self._cache)
        if (other := self._tasks.get(name)) is not None and not _is_same(other.fn, fn):
            raise InvalidInput(f"the task {name!r} exists already, made of another function; rename one, or pass name=")
        self._tasks[name] = task
        if self._when is not None and self._schedule is not None:
            self._schedule(task, **({"cron": self._when} if isinstance(self._when, str) else self._when))
        return task


def _cached(name: str, fn: Callable[..., Any], cache: bool | Cache) -> CachedTask | None:
    from .cache import cached_task  # for those who cache

    return cached_task(name, fn.__module__, cache)


def _check_asked(task: Task[..., Any], asked: Asked) -> None:
    from .cache import check_asked

    check_asked(asked)
    if task.cached is None and asked is not False:
        raise InvalidInput(f"{task.name} is not cached; write @app.task(cache=True) above it")


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether they come from the same line, as after a reload of their module."""
    a, b = one.__code__, other.__code__
    return (a.co_filename, a.co_firstlineno, a.co_qualname) == (b.co_filename, b.co_firstlineno, b.co_qualname)
