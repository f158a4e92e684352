"""HTTP on a socket, with limits that uvicorn leaves open: long headers, slow headers, readers that do not read."""

from __future__ import annotations

import asyncio
import fcntl
import re
import resource
import sys
import termios
from functools import cache
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..core.endpoints import JSON
from .request import failed

MOST_HEAD = 32 << 10  # bytes of request line and headers
HEAD_S = 10.0  # for them to arrive
STUCK_S = 15.0  # a reader that takes nothing for so long is cut
SPARE = 100  # descriptors that are not for connections
_AUTHORITY = re.compile(rb"[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]*)")


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
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))
        if self._is_head and self._head > MOST_HEAD and not self.transport.is_closing():
            self._refuse(431, "head_too_large", f"request line and headers are over {MOST_HEAD:,} bytes")

    def _feed(self, data: bytes | memoryview) -> None:
        """Read to its end. The parser leaves out the body of a request that asks for an upgrade; none is granted here,
        and what was left out would be taken for the next request. So its head is read again, without that wish."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)  # after a `close` the old one reads nothing more
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                self.parser.feed_data(head)
                data = memoryview(data)[upgrade.args[0] :]

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += (b"%s: %s" % header for header in self.headers if header[0] != b"upgrade")
        return b"\r\n".join((*lines, b"", b""))

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
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("no tunnels")  # an upgrade by itself, whatever its head says
            return  # `_feed` reads it again
        self._is_head, self._head = False, 0
        self._stop(self._deadline)
        self._deadline = None
        self._name_host()
        super().on_headers_complete()

    def _name_host(self) -> None:
        """The host of a request line in the absolute form is the one that is meant, whatever the header says (RFC 9112,
        3.2.2): a page of another site must not pass for ours by it. Who names no host, or two, is refused later."""
        if self.url.startswith(b"/"):
            return
        authority = _AUTHORITY.match(self.url)
        meant = authority[1] if authority else b""
        # Also emptied in place: the list is already part of what the application is told.
        self.headers[:] = [(name, meant if name == b"host" else value) for name, value in self.headers]

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()
        self._is_head = True

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._problem or (400, "invalid_http", "this is not HTTP/1.1")))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._stop(self._stuck)
        self._stuck = None
        super().resume_writing()
        if self.transport.is_closing():
            self._cut()  # the rest of the last word

    def _watch(self) -> None:
        """Whoever reads, however slowly, may read on."""
        self._stuck = self.loop.call_later(STUCK_S, self._look, self._unread())

    def _look(self, before: int) -> None:
        if self._unread() < before:
            self._watch()
        else:
            self.transport.abort()

    def _unread(self) -> int:
        """Bytes that have not arrived. Most are the kernel's, and it takes no more before a third of those is gone."""
        queued = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)

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
            self._watch()
        self.transport.close()

    @staticmethod
    def _stop(timer: Any) -> None:
        if timer is not None:
            timer.cancel()
