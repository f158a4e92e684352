"""How a request travels: over a socket, with connections that are kept."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, NamedTuple, Protocol

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError

from ..errors import InvalidInput, Unreachable

CONNECT_S = 5.0
KEPT = 4  # connections: one waits, one takes turns, two for the rest


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
    """The real one."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._pool = urllib3.connection_from_url(url, maxsize=KEPT, block=False, retries=False)
            self._used = _watch(self._pool)
        except (urllib3.exceptions.LocationParseError, urllib3.exceptions.URLSchemeUnknown) as error:
            raise InvalidInput(f"{url!r} is no address of a server ({error}); write http://HOST:8765") from None

    def request(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> Answer:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=timeout_s)
        try:
            answer = self._pool.urlopen(
                method, target, body, headers, retries=False, redirect=False, timeout=timeout, assert_same_host=False
            )
        except (NewConnectionError, MaxRetryError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise NotSent(f"no server answers at {self._url} ({_reason(error)}); `covey server` starts one") from None
        except (HTTPError, OSError) as error:
            raise Unreachable(f"the server at {self._url} did not answer ({_reason(error)})") from None
        return Answer(answer.status, answer.headers.get("content-type", ""), answer.data)

    def close(self) -> None:
        """Nothing is open, and whoever waits for an answer has none."""
        for connection in list(self._used):
            if (sock := getattr(connection, "sock", None)) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self._pool.close()


def _watch(pool: Any) -> set[Any]:
    """The connections that are in use: closing a pool closes only those that are not."""
    used: set[Any] = set()
    get, put = pool._get_conn, pool._put_conn

    def take(*args: Any, **kwargs: Any) -> Any:
        connection = get(*args, **kwargs)
        used.add(connection)
        return connection

    def give_back(connection: Any) -> None:
        used.discard(connection)
        put(connection)

    pool._get_conn, pool._put_conn = take, give_back
    return used


def _reason(error: BaseException) -> str:
    """The system's own word for it, without the library's objects."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror.lower()
        seen = seen.__cause__ or seen.__context__
    return str(error).rsplit(": ", 1)[-1] or type(error).__name__
