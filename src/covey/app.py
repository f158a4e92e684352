"""The application: a queue, the tasks that can be put into it, and the jobs that were."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from .arguments import encode
from .connection import Connection, absolute
from .core.specs import shell_spec, task_spec
from .errors import InvalidInput
from .job import Job
from .options import JobOptions, job_options
from .task import Task, TaskDecorator
from .transaction import Transaction, submit

if TYPE_CHECKING:
    from .core.ports import Client


class Covey:
    """``Covey()`` is the queue that the command line would use here; ``Covey("path.db")`` names one.

    ``Covey("http://host:8765", token=…)`` is the queue behind a server. Without a token there: COVEY_TOKEN.

    Nothing is opened before the first use. Threads may share an app; a forked child opens its own queue by itself.
    """

    def __init__(self, url: str | os.PathLike[str] | None = None, *, token: str | None = None) -> None:
        self._connection = Connection(url, token)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.task = TaskDecorator(self._connection, self.tasks, {})

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
        spec = task_spec(
            name,
            settings=self._connection.settings(),
            args=encode(name, args, kwargs) if args or kwargs else None,
        )
        return submit(self._connection, (spec,))[0]

    def shell(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        keep_background: bool = False,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> Job[None]:
        """A job that runs the command (a line for the shell, or a list of words) in ``cwd``, else here, is on disk."""
        spec = shell_spec(
            command,
            settings=self._connection.settings(),
            env=env,
            cwd=_here() if cwd is None else absolute(os.fspath(cwd)),
            keep_background=keep_background,
            **job_options(options),
        )
        return submit(self._connection, (spec,), tx)[0]

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
