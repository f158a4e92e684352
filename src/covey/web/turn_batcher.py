"""Turns of many pools: what arrives while a commit is under way travels in the next one, all in one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from ..core.turn import Reply, Turn
from ..engine.engine import Engine
from ..errors import CoveyError, StoreError
from .engine_threads import Open

MOST = 64  # turns in one transaction: a bound for how long the first of them waits for the last

Waiting = tuple[Turn, asyncio.Future[Reply], asyncio.AbstractEventLoop]


class Turner:
    def __init__(self, open: Open) -> None:
        self._open = open
        self._some = threading.Condition()
        self._waiting: deque[Waiting] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="covey-turns", daemon=True)
        self._thread.start()

    async def turn(self, turn: Turn) -> Reply:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        with self._some:
            if self._closed:
                raise StoreError("the server is stopping; try again soon")
            self._waiting.append((turn, future, loop))
            self._some.notify()
        return await future

    def close(self) -> None:
        with self._some:
            self._closed = True
            self._some.notify()
        self._thread.join()

    def _run(self) -> None:
        engine: Engine | None = None
        while group := self._next():
            try:
                engine = engine or self._open()
                answers: list[Reply | CoveyError] = list(engine.turns([turn for turn, _, _ in group]))
            except CoveyError as error:
                answers = [error] * len(group)
            except Exception as error:  # nobody may wait for ever for a turn that broke
                answers = [StoreError(f"the turn failed ({error}); nothing was written")] * len(group)
            for (_, future, loop), answer in zip(group, answers, strict=True):
                _tell(loop, future, answer)
        if engine:
            engine.close()

    def _next(self) -> list[Waiting]:
        """The turns that go together: each pool once. None when the server stops and all have been heard."""
        with self._some:
            self._some.wait_for(lambda: self._waiting or self._closed)
            group: list[Waiting] = []
            pools: set[int] = set()
            while self._waiting and len(group) < MOST and self._waiting[0][0].pool not in pools:
                pools.add(self._waiting[0][0].pool)
                group.append(self._waiting.popleft())
            return group


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Reply], answer: Reply | CoveyError) -> None:
    def tell() -> None:
        if future.done():
            return  # who asked is gone
        if isinstance(answer, CoveyError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    loop.call_soon_threadsafe(tell)
