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
from .execution import Task, first_call, second_call
from .messages import Dispatch
from .output import Capture, join, live_path
from .pool_link import Station, report
from .sync_worker import leave_if_forked, set_failure, set_requests, set_result, unknown_task

_captures: contextvars.ContextVar[tuple[Capture, Capture] | None] = contextvars.ContextVar("covey_output", default=None)


class Coroutines:
    def __init__(self, station: Station, tasks: dict[str, Task]) -> None:
        self._station, self._tasks = station, tasks
        self._pid = os.getpid()
        self._free = list(range(station.slot.places))
        self._running: dict[int, tuple[int, asyncio.Task[None]]] = {}  # place → serial, task
        self._stopped: set[int] = set()
        self._ended = asyncio.Event()

    def serve(self) -> None:
        sys.stdout, sys.stderr = Routed(0, sys.stdout), Routed(1, sys.stderr)
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_term)
        self._station.jobs.setblocking(False)
        self._station.ready()
        loop.add_reader(self._station.jobs, self._on_jobs)
        threading.Thread(target=self._end_with_pool, name="covey-lifeline", daemon=True).start()
        await self._ended.wait()
        while self._running:  # the pool wants no more of us, but it waits for these
            await asyncio.wait([task for _, task in self._running.values()])

    def _end_with_pool(self) -> None:
        """Nobody hears our reports any more: what runs here may run elsewhere soon, and must not go on.

        A thread of its own, because a coroutine that blocks would keep the loop from hearing it.
        """
        poll = select.poll()
        poll.register(self._station.reports, 0)  # only its end
        poll.poll()
        process_tree.end_all(grace_s=0)
        os._exit(0)

    def _on_jobs(self) -> None:
        """Takes what there is room for. The rest stays in the socket, where the pool can take it back."""
        while self._free:
            try:
                dispatch = self._station.receive()
            except BlockingIOError:
                return
            except Exception as error:  # the job is ours, and we cannot read it: with us it goes back
                self._station.broken(clean(f"{type(error).__name__}: {error}"))
                os._exit(1)
            if dispatch is None:
                asyncio.get_running_loop().remove_reader(self._station.jobs)
                self._ended.set()
                return
            place = self._free.pop()
            started_at = self._station.begin(place, dispatch.serial)
            task = asyncio.ensure_future(self._run(place, dispatch, started_at))
            self._running[place] = (dispatch.serial, task)
        asyncio.get_running_loop().remove_reader(self._station.jobs)

    def _on_term(self) -> None:
        for place, (serial, task) in list(self._running.items()):
            if self._station.slot.asked_to_stop(place) == serial and serial not in self._stopped:
                self._stopped.add(serial)
                task.cancel()

    async def _run(self, place: int, dispatch: Dispatch, started_at: int) -> None:
        told = report(dispatch, "success", started_at)
        try:
            await self._run_captured(place, dispatch, told)
        except Exception as error:  # nobody else would ever tell of this job
            set_failure(told, error)
        self._station.end(place, dispatch.serial, told)
        self._stopped.discard(dispatch.serial)
        del self._running[place]
        if not self._free:
            asyncio.get_running_loop().add_reader(self._station.jobs, self._on_jobs)
        self._free.append(place)
        if not self._running and process_tree.is_burdened():
            self._ended.set()

    async def _run_captured(self, place: int, dispatch: Dispatch, told: Report) -> None:
        claim = dispatch.claim
        paths = [
            live_path(self._station.live, claim.id, claim.fence, s) if dispatch.live else None for s in ("out", "err")
        ]
        captures = Capture(paths[0]), Capture(paths[1])
        _captures.set(captures)
        task = self._tasks.get(claim.task)
        if task is None:
            unknown_task(told, claim.task, self._tasks)
        else:
            await self._call(task, dispatch, place, told)
            leave_if_forked(self._pid)
        told.output = join(*captures)

    async def _call(self, task: Task, dispatch: Dispatch, place: int, told: Report) -> None:
        claim, serial = dispatch.claim, dispatch.serial
        context = Context.from_claim(
            claim,
            stopping=lambda: self._station.slot.asked_to_stop(place) == serial,
            settings=self._station.settings,
            siblings=lambda: self._station.ask(serial),
            info_path=live_path(self._station.live, claim.id, claim.fence, "info") if dispatch.live else None,
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
