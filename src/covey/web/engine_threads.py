"""Where the store is asked: a few threads with an engine each, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

from ..engine.engine import Engine

R = TypeVar("R")

Open = Callable[[], Engine]


class Desk:
    """Engines are opened when a thread first needs one: a quiet server has few.

    ``limit_s``: for how long one question may take; whoever has a limit only reads.
    """

    def __init__(self, open: Open, threads: int, *, name: str = "desk", limit_s: float | None = None) -> None:
        self._open, self._limit_s = open, limit_s
        self._mine = threading.local()
        self._engines: list[Engine] = []
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"covey-{name}")

    async def ask(self, question: Callable[[Engine], R]) -> R:
        return await asyncio.wrap_future(self._submit(question))

    def _submit(self, question: Callable[[Engine], R]) -> Future[R]:
        return self._threads.submit(self._answer, question)

    def _answer(self, question: Callable[[Engine], R]) -> R:
        engine: Engine | None = getattr(self._mine, "engine", None)
        if engine is None:
            engine = self._mine.engine = self._open()
            with self._lock:
                self._engines.append(engine)
        with nullcontext() if self._limit_s is None else engine.store.dialect.within(self._limit_s):
            return question(engine)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for engine in self._engines:
            engine.close()
