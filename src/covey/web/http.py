"""HTTP on a socket, with limits that uvicorn leaves open: long headers, slow headers, readers that do not read."""

from __future__ import annotations

import asyncio
import resource
from functools import cache
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..core.wire import JSON
from .request import failed

MOST_HEAD = 32 << 10  # bytes of request line and headers
HEAD_S = 10.0  # for them to arrive
STUCK_S = 15.0  # a reader that takes nothing for so long is cut
SPARE = 100  # descriptors that are not for connections


@cache
def most_connections() -> int:
    """So many that the store and its files still find descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - SPARE) if soft != resource.RLIM_INFINITY else 1 << 20


class Careful(HttpToolsProtocol):
    _head = 0  # bytes of the head so far; None when it is complete
    _is_head = True
    _problem: tuple[int, str, str] | None = None
    _deadline: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._refuse(503, "too_many_connections", "too many connections are open; try again soon")
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._deadline)
        self._stop(self._stuck)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_head:
            self._head += len(data)
            if self._deadline is None:
                self._expect_head()
        super().data_received(data)
        if self._is_head and self._head > MOST_HEAD and not self.transport.is_closing():
            self._refuse(431, "head_too_large", f"request line and headers are over {MOST_HEAD:,} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head = True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(sum(len(each) + len(text) for each, text in self.headers) if len(self.headers) % 16 == 0 else 0)

    def on_headers_complete(self) -> None:
        self._count(len(self.url) + sum(len(name) + len(value) for name, value in self.headers))
        self._is_head, self._head = False, 0
        self._stop(self._deadline)
        self._deadline = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_head = True

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._problem or (400, "invalid_http", "this is not HTTP/1.1")))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop(self._stuck)
        self._stuck = None
        super().resume_writing()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_S, self._too_slow)

    def _too_slow(self) -> None:
        if self._is_head and not self.transport.is_closing():
            self._refuse(408, "too_slow", "the request did not arrive in time")

    def _count(self, size: int) -> None:
        if size > MOST_HEAD:
            self._problem = 431, "head_too_large", f"request line and headers are over {MOST_HEAD:,} bytes"
            raise ValueError("head too large")  # the parser stops, and `send_400_response` says why

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = msgspec.json.encode(failed(code, message))
        head = f"content-type: {JSON}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        self.transport.write(STATUS_LINE[status] + head + body)
        self._cut()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._cut()

    def _cut(self) -> None:
        """Closed once the last word has been read, or soon: who reads nothing would keep it open for ever."""
        if self._stuck is None:
            self._stuck = self.loop.call_later(STUCK_S, self.transport.abort)
        self.transport.close()

    @staticmethod
    def _stop(timer: Any) -> None:
        if timer is not None:
            timer.cancel()
