"""A job as its caller holds it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from .errors import JobFailed, Refused, StillStopping, WaitTimeout

if TYPE_CHECKING:
    from .connection import Connection
    from .core.model import Enqueued, Spec
    from .core.view import Attempt, JobView

R_co = TypeVar("R_co", covariant=True)

ENDED = ("completed", "dead", "cancelled")
STOPPING_S = 15.0  # TERM, grace, KILL, and some patience
FIRST_LOOK_S, LOOK_GROWS, LAST_LOOK_S = 0.005, 1.5, 0.25


class SpecSource(Protocol):
    """Whatever knows the options that a call was made with."""

    @property
    def connection(self) -> Connection: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    def spec(self, args: str | None, settings: Mapping[str, Any] | None = None) -> Spec: ...


class Call(Generic[R_co]):
    """A task with its arguments, checked and ready to be enqueued. Made by ``task.call(…)``."""

    __slots__ = ("args", "source")

    def __init__(self, source: SpecSource, args: str | None) -> None:
        self.source = source
        self.args = args  # JSON text

    def __repr__(self) -> str:
        return f"<Call of {self.source!r}>"


class Job(Generic[R_co]):
    """A handle: cheap, remembers the id, asks the queue for everything else."""

    __slots__ = ("_connection", "_id", "_key", "_trouble", "_view", "existing")

    def __init__(
        self,
        connection: Connection,
        id: int | None,
        *,
        key: str | None = None,
        existing: bool = False,
        view: JobView | None = None,
        trouble: str = "",
    ) -> None:
        self._connection = connection
        self._id = id
        self._key = key
        self._view = view
        self._trouble = trouble  # why there is no id
        self.existing = existing  # if_exists="return" found this job instead of adding one

    def stored(self, done: Enqueued, spec: Spec) -> None:
        """Its transaction was written: the job has its id."""
        self._id, self.existing = done.id, done.existing
        self._key = None if done.existing else spec.key

    def abandoned(self, why: str) -> None:
        """Its transaction was not written: there will never be an id."""
        self._trouble = why

    # ── what it is ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> int:
        if self._id is None:
            raise Refused(self._trouble)
        return self._id

    @property
    def key(self) -> str | None:
        return self._key if self._key is not None or self._id is None else self.view.key

    @property
    def view(self) -> JobView:
        """Everything about the job as it was when last looked at; `refresh` looks again."""
        return self._view or self._look()

    @property
    def state(self) -> str:
        """The state now."""
        return self._look().state

    def refresh(self) -> Job[R_co]:
        """`view` shows the job as it is now."""
        self._look()
        return self

    def _look(self) -> JobView:
        self._view = view = self._connection.client.job(self.id)
        return view

    def history(self) -> list[Attempt]:
        """The attempts that left something to tell: a failure, or output."""
        return self._connection.client.history(self.id)

    def logs(self, stream: Literal["stdout", "stderr"] = "stdout") -> str:
        """What the last attempt wrote, once it has ended; '' if that was nothing."""
        history, view = self.history(), self._look()
        if not history or (view.state == "completed" and history[-1].fence != view.fence):
            return ""  # the attempt that succeeded was silent: what an earlier one wrote is not its output
        return history[-1].stderr if stream == "stderr" else history[-1].stdout

    # ── waiting for it ──────────────────────────────────────────────────────────────────────────────────────────────

    def wait(self, timeout: float | None = None) -> Job[R_co]:
        """The job has ended, well or badly; WaitTimeout if it has not after so many seconds."""
        if not self._connection.client.wait_for([self.id], timeout):
            raise WaitTimeout(_late(self._look(), timeout))
        return self

    def result(self, timeout: float | None = None) -> R_co:
        """What the task returned. Waits for it; JobFailed if the job died or was cancelled."""
        return self._outcome(self.wait(timeout)._look())

    async def aresult(self, timeout: float | None = None) -> R_co:
        """Like `result`, for async code: other tasks go on meanwhile, and cancelling the wait leaves nothing behind."""
        import asyncio  # takes longer to import than all of Covey, and most programs that enqueue are not async

        # Short looks instead of one long wait in a thread: a thread cannot be cancelled, and a hundred waits would
        # take all threads of the loop's executor.
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK_S
        while (view := await asyncio.to_thread(self._look)).state not in ENDED:
            left = LAST_LOOK_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(_late(view, timeout))
            await asyncio.sleep(min(pause, left))
            pause = min(pause * LOOK_GROWS, LAST_LOOK_S)
        return self._outcome(view)

    def _outcome(self, view: JobView) -> R_co:
        if view.state == "completed":
            return cast(R_co, view.result)
        name = f"job {view.id} ({view.task})"
        if view.state == "cancelled":
            raise JobFailed(f"{name} was cancelled; retry it to run it again", view.id)
        if view.state == "dead":
            raise JobFailed(f"{name} is dead: {view.error}", view.id)
        raise JobFailed(f"{name} is {view.state} again: somebody retried it; wait once more", view.id)

    # ── changing it ─────────────────────────────────────────────────────────────────────────────────────────────────

    def cancel(self) -> Job[R_co]:
        """It will not run any more; if it runs, it is being stopped."""
        self._connection.client.cancel([self.id])
        self._view = None
        return self

    def retry(self, *, again: bool = False, all: bool = False) -> Job[R_co]:
        """It is pending again after it failed, died or was cancelled; with ``again``, a copy of it is (returned).

        A job with children waits again for those that did not complete; with ``all`` they go and it runs anew.
        """
        (change,) = self._connection.client.retry([self.id], again=again, all=all)
        self._view = None
        return self if change.new_id is None else Job(self._connection, change.new_id)

    def remove(self, *, force: bool = False) -> None:
        """The job and all that is known of it are gone. It must have ended; ``force`` cancels it and waits for that."""
        deadline = time.monotonic() + STOPPING_S
        while True:
            try:
                self._connection.client.remove([self.id], force=force)
                break
            except StillStopping:
                if not force or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._view = None

    def __repr__(self) -> str:
        key = f" key {self._key!r}" if self._key is not None else ""
        return f"<Job {self._id if self._id is not None else 'not stored'}{key}>"


def _late(view: JobView, timeout: float | None) -> str:
    return f"job {view.id} is still {view.state} after {timeout:g} s; wait longer, or ask `covey why {view.id}`"
