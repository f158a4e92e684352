"""From the engine, which is not async, to an async connection: it runs in a thread, its statements in the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from ...errors import Undone

T = TypeVar("T")


class Bridge:
    """An async connection as a thread sees it."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self._loop = loop
        self._lock = threading.Lock()
        self._left = False
        self._under_way: Future[Any] | None = None

    def leave(self) -> None:
        """Nothing more is sent, except what takes back what was sent; what waits on the server does so no longer."""
        with self._lock:
            self._left = True
            if self._under_way is not None:
                self._under_way.cancel()

    def send(self, text: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._left and not text.startswith("rollback"):
                raise Undone("the enqueue was cancelled")
            sent = asyncio.run_coroutine_threadsafe(self._send(text, params), self._loop)
            # These do not wait for anybody; and a savepoint that may or may not be there could not be returned to.
            self._under_way = None if text.startswith(("savepoint", "release", "rollback")) else sent
        try:
            return sent.result()
        except CancelledError:
            raise Undone("the enqueue was cancelled") from None

    async def _send(self, text: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        async with psycopg.AsyncClientCursor(self.connection, row_factory=tuple_row) as cursor:
            await cursor.execute(text.encode(), params)
            while cursor.nextset():
                pass
            return await cursor.fetchall() if cursor.description is not None else []


async def across(connection: psycopg.AsyncConnection[Any], work: Callable[[Bridge], T]) -> T:
    """What the work returns; it was done in a thread. When this returns or raises, nothing is sent any more."""
    loop = asyncio.get_running_loop()
    bridge = Bridge(connection, loop)
    # A thread of its own: in the loop's pool, those that wait for a key could keep out the one that would free it.
    threads = ThreadPoolExecutor(1, "covey-bridge")
    done = loop.run_in_executor(threads, work, bridge)
    threads.shutdown(wait=False)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # The caller goes on with the connection now, to roll back or not: the thread must have finished with it.
        bridge.leave()
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                continue
        done.exception()
        raise
