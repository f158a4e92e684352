"""The server as an ASGI application: who asks, what for, the answer, and what is said when something is wrong."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable
from typing import Any

from ..core import bodies, endpoints
from ..core.endpoints import Endpoint
from ..errors import Busy, CoveyError, InvalidInput, Unauthorized
from ..log import Log
from . import stream_board
from .api import Call, Verbs
from .api.health import Probes
from .auth import Gatekeeper, Guest
from .engine_threads import Desk, Open
from .notifier import Hub
from .openapi import document, page
from .readers import Readers
from .request import Gone, HttpError, Receive, Request, Scope, Send, failed, route, written
from .stream import Streams
from .turn_batcher import Turner

THREADS = 4
SAFETY = [  # on every answer
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
]


class App:
    """Made on the event loop that it serves; `close` it from elsewhere than that loop's thread, or from a worker."""

    def __init__(
        self,
        open: Open,
        log: Log,
        *,
        names: Iterable[str] = (),
        is_local: bool = True,
        needs_token: bool = False,
    ) -> None:
        self._log = log
        self._desk = Desk(open, THREADS)
        self._turner = Turner(open)
        self._hub = Hub(open, log)
        self._readers = Readers(open)
        self._verbs = Verbs(self._desk, self._readers, self._turner, self._hub)
        self._boards = stream_board.Queues(open, self._hub, log), stream_board.Jobs(open, self._hub, log)
        self._streams = Streams(self._readers, *self._boards)
        self._probes = Probes(self._desk, log)
        self._gatekeeper = Gatekeeper(self._desk, names=names, is_local=is_local, needs_token=needs_token)

    def stop_waiting(self) -> None:
        """Whoever waits for something is told that nothing has happened, and new ones do not wait."""
        self._streams.close()
        self._hub.dismiss()

    async def close(self) -> None:
        """Nothing runs and nothing is open; who waits is answered first."""
        self.stop_waiting()
        loop = asyncio.get_running_loop()
        for part in (self._hub, self._turner, self._desk, self._readers, *self._boards):
            await loop.run_in_executor(None, part.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        headers: list[tuple[str, str]] = []
        try:
            endpoint, names = self._find(request)
            if endpoint.stream:
                await self._stream(endpoint, names, request, send)
                return
            value = await self._answer(endpoint, names, request)
            is_probe = isinstance(value, bodies.Health | bodies.Ready)
            status = 503 if is_probe and value.status != "ready" else 200
        except Gone:
            return
        except HttpError as error:
            status, value, headers = error.status, failed(error.code, str(error)), error.headers
        except CoveyError as error:
            status, value = endpoints.failure_of(error)
            if isinstance(error, Unauthorized):
                headers = [("www-authenticate", "Bearer")]
            if isinstance(error, Busy):
                headers = [("retry-after", "1")]
        except OverflowError:
            status, value = endpoints.failure_of(InvalidInput("a number is too large; 64 bits are the limit"))
        except Exception as error:
            self._log.broke(request.method, traceback.format_exc())
            status, value = 500, failed("internal", f"the server failed ({type(error).__name__}); its log says more")
        try:
            # What is still on its way cannot be told from the next request.
            if not await request.finish():
                headers = [*headers, ("connection", "close")]
        except Gone:
            return
        await self._send(send, request, status, value, headers)

    def _find(self, request: Request) -> tuple[Endpoint, dict[str, str]]:
        self._gatekeeper.check_place(request)
        return route(request.method, request.segments())

    async def _call(self, endpoint: Endpoint, names: dict[str, str], request: Request) -> Call:
        async def admit() -> Guest:
            return Guest("read") if endpoint.role is None else await self._gatekeeper.admit(request, endpoint)

        guest = await admit()
        query = request.query(endpoint.query) if endpoint.role is not None else None
        return Call(guest, names, query, await request.body(endpoint), admit)

    async def _answer(self, endpoint: Endpoint, names: dict[str, str], request: Request) -> Any:
        if endpoint.name == "openapi":
            return document()
        if endpoint.name == "page":
            return page()
        if probe := self._probes.answers.get(endpoint.name):
            return await probe()
        call = await self._call(endpoint, names, request)
        if not endpoint.waits and not endpoint.looks:
            return await self._verbs.answer(endpoint, call)
        # Whoever hangs up while he waits gives his place free at once.
        answering = asyncio.ensure_future(self._verbs.answer(endpoint, call))
        leaving = asyncio.ensure_future(request.gone())
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise Gone
            return answering.result()
        finally:
            for each in (answering, leaving):
                each.cancel()

    async def _stream(self, endpoint: Endpoint, names: dict[str, str], request: Request, send: Send) -> None:
        call = await self._call(endpoint, names, request)
        await self._streams.serve(call, request, send, SAFETY)

    async def _send(self, send: Send, request: Request, status: int, value: Any, more: list[tuple[str, str]]) -> None:
        if isinstance(value, str):
            body, kind = value.encode(), "text/html; charset=utf-8"
        else:
            body, kind = written(value, request.speaks)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *SAFETY]
        headers += [(name.encode(), text.encode("latin-1")) for name, text in more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})
