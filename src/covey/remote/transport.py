"""How a request travels: over a socket, with connections that are kept."""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from ..errors import InvalidInput, Unreachable

CONNECT_S = 5.0
KEPT = 4  # idle connections: one waits, one takes turns, two for the rest


class NotSent(Unreachable):
    """Nobody was there to hear it: the same again does no harm."""


class Answer(NamedTuple):
    status: int
    kind: str  # what the body is written in
    body: bytes


class Transport(Protocol):
    def request(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> Answer:
        """Unreachable when there is no answer; NotSent when there was nobody to ask."""
        ...

    def close(self) -> None: ...


class Sockets:
    """The real one: the standard library's client, whose import costs a command line a few milliseconds only."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise InvalidInput(f"{url!r} is no address of a server ({error}); write http://HOST:8765") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"{url!r} is no address of a server; write http://HOST:8765")
        if parts.username is not None:
            raise InvalidInput("a token does not belong into the address; set COVEY_TOKEN or COVEY_TOKEN_FILE")
        self._secure, self._host, self._prefix = parts.scheme == "https", parts.hostname, parts.path.rstrip("/")
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._used: set[http.client.HTTPConnection] = set()
        self._closed = False

    def request(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> Answer:
        connection = self._take()
        kept = False
        try:
            assert connection.sock is not None
            connection.sock.settimeout(timeout_s)
            connection.request(method, self._prefix + target, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            kept = not answer.will_close
            return Answer(answer.status, answer.headers.get("content-type", ""), data)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"the server at {self._url} did not answer ({_reason(error)})") from None
        finally:
            self._give_back(connection, kept)

    def close(self) -> None:
        """Nothing is open, and whoever waits for an answer has none."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in self._used:
                if connection.sock is not None:
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)
        for connection in idle:
            connection.close()

    def _take(self) -> http.client.HTTPConnection:
        """A connection that is open, as far as can be told."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if _is_quiet(connection):
                    self._used.add(connection)
                    return connection
                connection.close()
        connection = self._new()
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NotSent(f"no server answers at {self._url} ({_reason(error)}); `covey server` starts one") from None
        with self._lock:
            self._used.add(connection)
        return connection

    def _new(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port or 443, timeout=CONNECT_S)
        return http.client.HTTPConnection(self._host, self._port or 80, timeout=CONNECT_S)

    def _give_back(self, connection: http.client.HTTPConnection, kept: bool) -> None:
        with self._lock:
            self._used.discard(connection)
            if kept and not self._closed and len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether the other side has neither hung up nor spoken out of turn."""
    if connection.sock is None or connection.sock.fileno() < 0:
        return False
    look = select.poll()  # not select, which ends at descriptor 1,023
    look.register(connection.sock, select.POLLIN)
    return not look.poll(0)


def _reason(error: BaseException) -> str:
    """The system's own word for it."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
