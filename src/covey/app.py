"""The application: a queue, the tasks that can be put into it, and the jobs that were."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from .arguments import encode
from .connection import Connection, absolute
from .core.options import command_options
from .core.specs import shell_spec, task_spec
from .errors import InvalidInput
from .job import Job
from .task import Task, TaskDecorator
from .transaction import Transaction, submit

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from .cache import Cache
    from .core.options import CommandOptions
    from .core.ports import Client
    from .job import Call
    from .schedule import Schedule
    from .task import Variant


class Covey:
    """``Covey()`` is the queue that the command line would use here; ``Covey("path.db")`` names one.

    ``Covey("http://host:8765", token=…)`` is the queue behind a server. Without a token there: COVEY_TOKEN.

    Nothing is opened before the first use. Threads may share an app; a forked child opens its own queue by itself.
    """

    def __init__(
        self, url: str | os.PathLike[str] | None = None, *, token: str | None = None, name: str | None = None
    ) -> None:
        self._connection = Connection(url, token)
        self.name = name  # tells the schedules of two projects apart that share a queue; None: what --app says
        self.schedules: dict[str, Schedule] = {}
        self.tasks: dict[str, Task[..., Any]] = {}
        self.task = TaskDecorator(self._connection, self.tasks, {}, schedule=self.schedule)

    @property
    def client(self) -> Client:
        """The queue itself: everything that can be asked of it, open in this process."""
        return self._connection.client

    def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """A job of the task with that name is on disk. For producers that cannot import the function."""
        if isinstance(name, Task):
            raise InvalidInput(f"app.enqueue takes a task's name; call {name.name}.enqueue(…) instead")
        if (task := self.tasks.get(name)) is not None:
            return task.enqueue(*args, **kwargs)
        spec = task_spec(name, args=encode(name, args, kwargs) if args or kwargs else None)
        return submit(self._connection, (spec,))[0]

    def shell(
        self,
        command: str | Sequence[str],
        *,
        tx: object = None,
        cache: bool | Cache | None = None,
        **options: Unpack[CommandOptions],
    ) -> Job[None]:
        """A job that runs the command (a line for the shell, or a list of words) in ``cwd``, else here, is on disk.

        With ``cache`` it need not run if it is known what comes of it (docs/cache.md).
        """
        words = command_options(options)
        words["cwd"] = absolute(words["cwd"]) if "cwd" in words else _here()
        spec = shell_spec(command, **words)
        if cache:
            from . import cache as caching  # for those who cache

            spec = caching.cached_command(spec, caching.Cache() if cache is True else cache, True)
        return submit(self._connection, (spec,), tx)[0]

    def schedule(
        self,
        what: Variant[..., Any] | Call[Any],
        *,
        cron: str | Sequence[str] | None = None,
        every: float | str | timedelta | None = None,
        at: datetime | Sequence[datetime] | None = None,
        tz: str = "UTC",
        name: str | None = None,
        catch_up: str = "one",
        overlap: str = "skip",
        window: float | str | timedelta | None = None,
        jitter: float | str | timedelta | None = None,
        starts: datetime | None = None,
        until: datetime | None = None,
        pause_after_failures: int | None = None,
    ) -> Schedule:
        """The task, or ``task.call(…)``, is declared to run by itself: by cron in a zone, in a period, or at instants.

        Whoever starts a pool with this app brings its schedules along; nothing is written here. Its name is the
        task's, unless one is given. docs/schedules.md has what the options mean.
        """
        from . import schedule

        found = schedule.declared(
            what, name=name, cron=cron, every=every, at=at, tz=tz, catch_up=catch_up, overlap=overlap, window=window,
            jitter=jitter, starts=starts, until=until, pause_after_failures=pause_after_failures,
        )  # fmt: skip
        if found.name in self.schedules:
            raise InvalidInput(f"the schedule {found.name!r} exists already; pass name= to have another one")
        self.schedules[found.name] = found
        return found

    def job(self, ref: int | str) -> Job[Any]:
        """The job with that id or key; NotFound if there is none."""
        if isinstance(ref, bool) or not isinstance(ref, int | str):
            raise InvalidInput(f"a {type(ref).__qualname__} names no job; pass an id or a key")
        view = self.client.job(ref)
        return Job(self._connection, view.id, key=view.key, view=view)

    def transaction(self) -> Transaction:
        """In a ``with`` block: whatever this thread or asyncio task enqueues in it is written once, at its end."""
        return Transaction(self._connection)

    def close(self) -> None:
        """The queue is closed in this process; the next use opens it again."""
        self._connection.close()

    def __enter__(self) -> Covey:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Covey {self._connection.url or 'default queue'}: {len(self.tasks)} tasks>"


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InvalidInput("the current directory is gone; pass cwd=") from None
