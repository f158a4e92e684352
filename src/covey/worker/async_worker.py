"""Runs `async def` tasks, many at a time in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import io
import os
import select
import signal
import sys
import threading
from typing import Any

from ..core.codec import clean
from ..core.model import Report
from ..system import process_tree
from .context import Context
from .execution import RunnableTask, first_call, second_call
from .messages import RunJob
from .output import Capture, join, live_path
from .pool_link import PoolLink, report
from .sync_worker import leave_if_forked, set_failure, set_requests, set_result, unknown_task

_captures: contextvars.ContextVar[tuple[Capture, Capture] | None] = contextvars.ContextVar("covey_output", default=None)


class AsyncWorker:
    def __init__(self, link: PoolLink, tasks: dict[str, RunnableTask]) -> None:
        self._link, self._tasks = link, tasks
        self._pid = os.getpid()
        self._free = list(range(link.slot.places))
        self._running: dict[int, tuple[int, asyncio.Task[None]]] = {}  # place → serial, task
        self._stopped: set[int] = set()
        self._ended = asyncio.Event()

    def serve(self) -> None:
        sys.stdout, sys.stderr = Routed(0, sys.stdout), Routed(1, sys.stderr)
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_term)
        self._link.jobs.setblocking(False)
        self._link.ready()
        loop.add_reader(self._link.jobs, self._on_jobs)
        threading.Thread(target=self._end_with_pool, name="covey-lifeline", daemon=True).start()
        await self._ended.wait()
        while self._running:  # the pool wants no more of us, but it waits for these
            await asyncio.wait([task for _, task in self._running.values()])

    def _end_with_pool(self) -> None:
        """Nobody hears our reports any more: what runs here may run elsewhere soon, and must not go on.

        A thread of its own, because a coroutine that blocks would keep the loop from hearing it.
        """
        poll = select.poll()
        poll.register(self._link.reports, 0)  # only its end
        poll.poll()
        process_tree.end_all(grace_s=0)
        os._exit(0)

    def _on_jobs(self) -> None:
        """Takes what there is room for. The rest stays in the socket, where the pool can take it back."""
        while self._free:
            try:
                job = self._link.receive()
            except BlockingIOError:
                return
            except Exception as error:  # the job is ours, and we cannot read it: with us it goes back
                self._link.broken(clean(f"{type(error).__name__}: {error}"))
                os._exit(1)
            if job is None:
                asyncio.get_running_loop().remove_reader(self._link.jobs)
                self._ended.set()
                return
            place = self._free.pop()
            started_at = self._link.begin(place, job.serial)
            task = asyncio.ensure_future(self._run(place, job, started_at))
            self._running[place] = (job.serial, task)
        asyncio.get_running_loop().remove_reader(self._link.jobs)

    def _on_term(self) -> None:
        for place, (serial, task) in list(self._running.items()):
            if self._link.slot.asked_to_stop(place) == serial and serial not in self._stopped:
                self._stopped.add(serial)
                task.cancel()

    async def _run(self, place: int, job: RunJob, started_at: int) -> None:
        told = report(job, "success", started_at)
        try:
            await self._run_captured(place, job, told)
        except Exception as error:  # nobody else would ever tell of this job
            set_failure(told, error)
        self._link.end(place, job.serial, told)
        self._stopped.discard(job.serial)
        del self._running[place]
        if not self._free:
            asyncio.get_running_loop().add_reader(self._link.jobs, self._on_jobs)
        self._free.append(place)
        if not self._running and process_tree.is_burdened():
            self._ended.set()

    async def _run_captured(self, place: int, job: RunJob, told: Report) -> None:
        claim = job.claim
        paths = [live_path(self._link.live, claim.id, claim.fence, s) if job.live else None for s in ("out", "err")]
        captures = Capture(paths[0]), Capture(paths[1])
        _captures.set(captures)
        task = self._tasks.get(claim.task)
        if task is None:
            unknown_task(told, claim.task, self._tasks)
        else:
            await self._call(task, job, place, told)
            leave_if_forked(self._pid)
        told.output = join(*captures)

    async def _call(self, task: RunnableTask, job: RunJob, place: int, told: Report) -> None:
        claim, serial = job.claim, job.serial
        context = Context.from_claim(
            claim,
            stopping=lambda: self._link.slot.asked_to_stop(place) == serial,
            settings=self._link.settings,
            siblings=lambda: self._link.ask(serial),
            info_path=live_path(self._link.live, claim.id, claim.fence, "info") if job.live else None,
        )
        try:
            value = await _awaited(first_call(task, claim, context)())
            if (join := second_call(task, claim, context)) is not None:
                value = await _awaited(join())
            set_result(told, value)
        except asyncio.CancelledError as error:
            set_failure(told, error)
            if serial in self._stopped:
                told.outcome, told.error, told.detail = "stopped", None, None
        except BaseException as error:
            set_failure(told, error)
        set_requests(told, task, context)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Routed(io.TextIOBase):
    """A standard stream that knows which task is writing."""

    def __init__(self, which: int, fallback: Any) -> None:
        self._which, self._fallback = which, fallback

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        captures = _captures.get()
        if captures is None:
            return int(self._fallback.write(text))
        captures[self._which].write(text.encode("utf-8", "replace"))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(Exception):
            self._fallback.flush()

    def fileno(self) -> int:
        return int(self._fallback.fileno())
