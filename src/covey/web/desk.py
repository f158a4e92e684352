"""Where the store is asked: a few threads with an engine each, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..engine.engine import Engine

R = TypeVar("R")

Open = Callable[[], Engine]


class Desk:
    """Engines are opened when a thread first needs one: a quiet server has few."""

    def __init__(self, open: Open, threads: int) -> None:
        self._open = open
        self._mine = threading.local()
        self._engines: list[Engine] = []
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="covey-desk")

    async def ask(self, question: Callable[[Engine], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)

    def _answer(self, question: Callable[[Engine], R]) -> R:
        engine: Engine | None = getattr(self._mine, "engine", None)
        if engine is None:
            engine = self._mine.engine = self._open()
            with self._lock:
                self._engines.append(engine)
        return question(engine)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for engine in self._engines:
            engine.close()
