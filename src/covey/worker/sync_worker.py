"""Runs Python tasks, one after the other: the same loop for every kind of function, and a way to stop it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from typing import Any, Literal

from ..core.codec import clean, decode, encode
from ..core.model import Claim, Output, Report
from ..errors import Abort, CoveyError, Retry, Snooze, SpawnRefused, Stopped
from ..system import process_tree
from .context import Context
from .execution import RunnableTask, first_call, second_call, set_spawned
from .messages import RunJob
from .output import Capture, join, live_path, open_plain, read_ends
from .pool_link import PoolLink, report

LOOK_EVERY = 256  # tiny jobs between two looks at what they left


class SyncWorker:
    """A worker for ordinary functions."""

    def __init__(self, link: PoolLink, tasks: dict[str, RunnableTask]) -> None:
        self._link, self._tasks = link, tasks
        self._pid = os.getpid()
        self._running = 0
        self._stopped_at = 0.0
        self._files = Files(link.live)
        signal.signal(signal.SIGTERM, self._on_term)

    def serve(self) -> None:
        """Returns when the pool has hung up."""
        link = self._link
        link.ready()
        receive, jobs = link.receive, 0
        while (job := receive()) is not None:
            started_at = link.begin(0, job.serial)
            told = self._run(job, started_at)
            if self._stopped_at and not process_tree.is_empty():  # whatever the task made of its stop
                self._end_children()
                link.end(0, job.serial, told)
                return  # their statuses were taken from under whatever user code still waits for them: begin afresh
            link.end(0, job.serial, told)
            jobs += 1
            if self._files.closed or ((job.live or not jobs % LOOK_EVERY) and process_tree.is_burdened()):
                return
            receive = link.receive if job.live else link.receive_soon

    def _on_term(self, number: int, frame: object) -> None:
        # A signal that comes late must not hit the next job, and one from elsewhere must hit none.
        if self._running and self._link.slot.asked_to_stop(0) == self._running:
            self._running, self._stopped_at = 0, time.monotonic()
            raise Stopped

    def _end_children(self) -> None:
        """What the stopped job has started is gone: only then may the job be said to be."""
        spent_s = time.monotonic() - self._stopped_at
        process_tree.end_all(grace_s=max(0.0, self._link.slot.grace_s(0) - spent_s))

    def _context(self, job: RunJob) -> Context:
        stopping, claim = self._link.slot.asked_to_stop, job.claim
        return Context.from_claim(
            claim,
            stopping=lambda: stopping(0) == job.serial,
            settings=self._link.settings,
            siblings=lambda: self._link.ask(job.serial),
            info_path=live_path(self._link.live, claim.id, claim.fence, "info") if job.live else None,
        )

    def _run(self, job: RunJob, started_at: int) -> Report:
        told = report(job, "success", started_at)
        claim = job.claim
        task = self._tasks.get(claim.task)
        if task is None:
            return unknown_task(told, claim.task, self._tasks)
        if job.live:
            self._files.show(claim.id, claim.fence)
        context = self._context(job) if task.wants_context or task.joined else None
        try:
            try:
                self._running, self._stopped_at = job.serial, 0.0
                value = _call_alone(task, claim.args) if context is None else _call(task, claim, context)
            finally:
                self._running = 0
                leave_if_forked(self._pid)
            set_result(told, value)
        except BaseException as error:
            set_failure(told, error)
        if context is not None:
            set_requests(told, task, context)
        told.output = self._files.take()
        return told


def _call_alone(task: RunnableTask, args: str | None) -> Any:
    """A task that wants no context and has no join: most of them."""
    given, named = decode(args) if args else ((), {})
    return _awaited(task.fn(*given, **named))


def _call(task: RunnableTask, claim: Claim, context: Context) -> Any:
    value = _awaited(first_call(task, claim, context)())
    join = second_call(task, claim, context)
    return value if join is None else _awaited(join())


def _awaited(value: Any) -> Any:
    return asyncio.run(value) if inspect.iscoroutine(value) else value


class Files:
    """Where standard output and error of a Python worker go. Never to a pipe: a child may keep them, nobody blocks."""

    def __init__(self, live: str) -> None:
        self._live = live
        self._own = [self._nameless(live), self._nameless(live)]
        self._streams = sys.stdout, sys.stderr
        self._shown = False
        self.closed = False  # a task has closed a stream for good: no later one could write
        self._restore()

    @staticmethod
    def _nameless(live: str) -> int:
        try:
            return os.open(live, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:  # no such directory any more, or a file system without nameless files
            return os.memfd_create("covey-out", os.MFD_CLOEXEC)

    def show(self, job: int, fence: int) -> None:
        """Until `take`, what is written can be followed. Without a place to show it the job runs all the same."""
        opened: list[int] = []
        try:
            for stream in ("out", "err"):
                path = live_path(self._live, job, fence, stream)
                opened.append(open_plain(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
            for fd, file in zip((1, 2), opened, strict=True):
                os.dup2(file, fd)
            self._shown = True
        except OSError:
            pass
        finally:
            for file in opened:
                os.close(file)

    def take(self) -> Output | None:
        """What was written since the last time; both files are empty afterwards, whatever a task did to its streams."""
        sys.stdout, sys.stderr = self._streams
        for stream in self._streams:
            _flush(stream)
        try:
            if not self._shown and not os.lseek(1, 0, os.SEEK_CUR) and not os.lseek(2, 0, os.SEEK_CUR):
                return None
        except OSError:
            self.closed = True  # the stream may be open, but the descriptor under it is not ours any more
        captures = Capture(), Capture()
        for fd, capture in zip((1, 2), captures, strict=True):
            with contextlib.suppress(OSError):
                read_ends(fd, capture)
        for own in self._own:
            os.ftruncate(own, 0)
            os.lseek(own, 0, os.SEEK_SET)
        self._restore()
        return join(*captures)

    def _restore(self) -> None:
        for fd, own in zip((1, 2), self._own, strict=True):
            os.dup2(own, fd)
        self._shown = False
        self.closed = self.closed or any(map(_is_closed, self._streams))


def _is_closed(stream: Any) -> bool:
    try:
        return bool(stream.closed)
    except ValueError:  # detached: as good as closed
        return True


def _flush(stream: Any) -> None:
    """As far as it can be: a task may have closed it."""
    try:
        stream.flush()
    except Exception:
        return  # in `suppress` this is a microsecond of a tiny job


def leave_if_forked(pid: int) -> None:
    """A task that forked may return twice. The child is no worker: it must neither report nor take jobs."""
    if os.getpid() != pid:
        os._exit(0)


def unknown_task(told: Report, name: str, tasks: dict[str, RunnableTask]) -> Report:
    told.outcome = "abort"
    told.error = f"unknown task {name!r}; this worker's app has {', '.join(sorted(tasks)) or 'none'}"[:1000]
    return told


def set_result(told: Report, value: Any) -> None:
    """The value as JSON; a value that JSON cannot carry buries the job, since it would be the same next time."""
    if value is None:
        return
    try:
        told.result = encode(value, what="the result")
    except CoveyError as error:
        told.outcome, told.error = "abort", str(error)


def set_requests(told: Report, task: RunnableTask, context: Context) -> None:
    """What the run asked for besides its value. If something is wrong with that, the job has failed, not its worker."""
    try:
        if context.collected:
            told.info = encode(context.collected, what="info")
        set_spawned(told, task, context)
    except Exception as error:
        told.result = told.info = told.spawned = None
        set_failure(told, error)


def set_failure(told: Report, error: BaseException) -> None:
    """Outcome and reason for whatever a task raised. Says it even if the exception's own text cannot be had."""
    try:
        text = clean(str(error))
    except Exception:
        text = "(its text could not be made)"
    told.outcome = "failure"
    told.error = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, Snooze):
        _set_delay(told, "snooze", error.seconds, None)
    elif isinstance(error, Abort | SpawnRefused):
        told.outcome, told.error = "abort", text or "aborted"
    elif isinstance(error, Retry):
        _set_delay(told, "failure", error.after, text)
    elif isinstance(error, Stopped):
        told.outcome, told.error = "stopped", None
    elif isinstance(error, SystemExit):
        told.error = f"the task called sys.exit({_shown(error.code)})"
    if told.outcome == "failure" and not isinstance(error, Retry):
        with contextlib.suppress(Exception):
            told.detail = clean("".join(traceback.format_exception(error)))[-65536:]
    told.error = told.error[:4000] if told.error else told.error


def _shown(value: object) -> str:
    try:
        return clean(repr(value))
    except Exception:
        return "…"


def _set_delay(told: Report, outcome: Literal["snooze", "failure"], asked: Any, text: str | None) -> None:
    """The job comes back after what the task asked for; if that is no time, it has failed, and waits as usual."""
    try:
        # A number of whatever kind, also in a text: Retry-After has it so.
        after_s = asked.total_seconds() if isinstance(asked, timedelta) else None if asked is None else float(asked)
    except Exception:
        told.error = f"{f'{text}; ' if text else ''}to come back after a {type(asked).__name__}: no number of seconds"
    else:
        told.outcome, told.after_s, told.error = outcome, after_s, text
