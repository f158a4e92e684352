"""Where people look: threads and connections of their own, so that nobody who works waits for somebody who reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..engine.engine import Engine
from ..errors import Busy
from .engine_threads import Desk, Open

R = TypeVar("R")

THREADS = 4
LIMIT_S = 15.0  # for one question
MOST_WAITING = 64
PATIENCE_S = 10.0  # for a free thread: with the limit less than what a client waits for an answer


class Readers(Desk):
    """A desk with a limit for each question, and for how many wait and how long. Used from one event loop."""

    def __init__(self, open: Open) -> None:
        super().__init__(open, THREADS, name="readers", limit_s=LIMIT_S)
        self._free = asyncio.Semaphore(THREADS)
        self._waiting = 0

    async def ask(self, question: Callable[[Engine], R]) -> R:
        await self._take_place()
        loop = asyncio.get_running_loop()
        asked = self._submit(question)

        def give_back(_: object) -> None:
            with suppress(RuntimeError):  # the loop is gone, and with it everybody who waited
                loop.call_soon_threadsafe(self._free.release)

        # When the thread is free, not when who asked has gone.
        asked.add_done_callback(give_back)
        return await asyncio.wrap_future(asked)

    async def _take_place(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # at once: whoever finds a free place has never waited
            return
        if self._waiting >= MOST_WAITING:
            raise Busy(f"{THREADS} long questions are being answered and {MOST_WAITING} more wait; ask again soon")
        self._waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), PATIENCE_S)
        except TimeoutError:
            raise Busy(f"{THREADS} long questions took all of {PATIENCE_S:g} s; ask again soon") from None
        finally:
            self._waiting -= 1
