"""A server in this process: asked directly, or over a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from covey.engine.engine import Engine
from covey.errors import Unreachable
from covey.log import Log
from covey.remote.remote import Remote
from covey.remote.transport import Answer
from covey.web.asgi import App
from covey.web.serve import bind, server_of

Open = Callable[[], Engine]


class InProcess:
    """A transport without a socket: the request goes straight to the application."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._loop = app, loop
        self._asked: set[Future[Answer]] = set()

    def request(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> Answer:
        path, _, query = target.partition("?")
        told = {"host": "localhost", **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in told.items()],
        }
        asked = asyncio.run_coroutine_threadsafe(self._call(scope, body or b""), self._loop)
        self._asked.add(asked)
        try:
            return asked.result(timeout_s + 30)
        except (TimeoutError, CancelledError):
            raise Unreachable("the server in this process did not answer") from None
        finally:
            self._asked.discard(asked)

    async def _call(self, scope: dict[str, Any], body: bytes) -> Answer:
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        answer: list[Any] = []

        async def receive() -> Any:
            if not parts:
                await asyncio.Event().wait()  # nobody hangs up here
            return parts.pop()

        async def send(message: Any) -> None:
            answer.append(message)

        await self._app(scope, receive, send)
        kind = dict(answer[0]["headers"])[b"content-type"].decode()
        return Answer(answer[0]["status"], kind, b"".join(part.get("body", b"") for part in answer[1:]))

    def close(self) -> None:
        for asked in list(self._asked):
            asked.cancel()


class Served:
    """A server on an event loop in a thread of its own. ``socket=False``: only `InProcess` reaches it."""

    def __init__(
        self, open: Open, *, socket: bool, hosts: tuple[str, ...] = ("127.0.0.1",), port: int = 0, **options: Any
    ) -> None:
        self._sockets = bind(hosts, port) if socket else []
        self.url = f"http://127.0.0.1:{self._sockets[0].getsockname()[1]}" if socket else "http://localhost"
        self._open, self._options = open, options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="test-server", daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    def connect(self, token: str | None = None) -> Remote:
        transport = None if self._sockets else InProcess(self.app, self._loop)
        return Remote(self.url, token=token, transport=transport)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server does not stop"

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.app = App(self._open, Log("server", quiet=True), **self._options)
        if not self._sockets:
            self._ready.set()
            await self._stop.wait()
        else:
            server = server_of(self.app, self._ready.set)
            serving = asyncio.ensure_future(server.serve(self._sockets))
            await self._stop.wait()
            server.should_exit = True
            await serving
        await self.app.close()
