"""One request as it comes in, and the answer to it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Annotated, Any, get_origin
from urllib.parse import parse_qs, unquote

import msgspec

from ..core.bodies import Failed, Failure
from ..core.endpoints import ENDPOINTS, JSON, MSGPACK, Endpoint
from ..core.turn import Turn
from ..errors import CoveyError, InvalidInput, NotFound, TooLarge
from .bounds import check_body
from .large_bodies import too_many, unpacked

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_S = 10.0  # for a body to arrive, and a second more …
BODY_PACE = 64 << 10  # … for so many bytes of it
LARGE = 256 << 10  # bytes of a body that is understood in a thread, so that the event loop need not wait
MAX_JSON_TURN = 16 << 20  # of msgpack, which pools speak, the length of a list is known before it is unpacked
DROPPED = 1 << 20  # bytes of a body that nobody wants which are read all the same, so that the answer arrives


class Gone(Exception):
    """Who asked has hung up."""


class HttpError(CoveyError):
    """An error that only HTTP knows."""

    def __init__(self, status: int, code: str, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, list(headers)


class Request:
    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope, self._receive = scope, receive
        self.method: str = scope["method"]
        self.headers: dict[str, str] = {}
        self.hosts: list[str] = []
        self._is_complete = False
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            if key == "host":
                self.hosts.append(text)
            # What is there twice is no token, no origin and no length that we know.
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text
        self._is_hopeless = False  # what is left of the body is too much, too slow, or not on its way

    @property
    def speaks(self) -> str:
        """How the answer shall be written."""
        return MSGPACK if MSGPACK in self.headers.get("accept", "") else JSON

    def segments(self) -> list[str]:
        """The path in pieces, each decoded on its own: an encoded slash is part of a name."""
        raw: bytes = self._scope.get("raw_path") or self._scope["path"].encode()
        try:
            names = [unquote(part, errors="strict") for part in raw.decode("ascii").split("/")[1:]]
        except UnicodeDecodeError:
            raise InvalidInput("the path is not UTF-8; encode names with %XX") from None
        if any("\x00" in name for name in names):
            raise InvalidInput("a name in the path has a NUL in it; no name has")
        return names

    def query(self, kind: Any) -> Any:
        """The query string as that struct."""
        text: str = self._scope["query_string"].decode("latin-1")
        if kind is None:
            if text:
                raise InvalidInput("this path takes no query; what comes after the ? means nothing here")
            return None
        try:
            given = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=1000)
        except (ValueError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the query string cannot be read: {error}") from None
        lists = {field.name for field in msgspec.structs.fields(kind) if _is_list(field.type)}
        if any("\x00" in each for texts in given.values() for each in texts):
            raise InvalidInput("the query string has a NUL in it; no name has")
        if twice := [name for name, each in given.items() if len(each) > 1 and name not in lists]:
            raise InvalidInput(f"the query string: {twice[0][:40]!r} is there twice; which one is meant?")
        values = {name: each if name in lists else each[0] for name, each in given.items()}
        return _converted(values, kind)

    async def body(self, endpoint: Endpoint) -> Any:
        """What was sent, as the struct that the endpoint takes."""
        data = await self._read(endpoint.limit)
        if endpoint.takes is None:
            return None
        said = self.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        if said not in (MSGPACK, JSON):
            raise HttpError(415, "unsupported_media_type", f"content-type {said!r}: send {JSON} or {MSGPACK}")
        if endpoint.takes is Turn and said == JSON and len(data) > MAX_JSON_TURN:
            raise _too_large(MAX_JSON_TURN)
        if len(data) > LARGE:
            return await asyncio.to_thread(_understood, data, endpoint, said)
        return _understood(data, endpoint, said)

    async def _read(self, limit: int) -> bytes:
        if self._length() > limit:
            self._is_hopeless = True
            raise _too_large(limit)
        parts = bytearray()
        began = time.monotonic()
        while not self._is_complete:
            parts += await self._part(began + BODY_S + len(parts) / BODY_PACE)
            if len(parts) > limit:
                self._is_hopeless = True
                raise _too_large(limit)
        return bytes(parts)

    async def finish(self) -> bool:
        """Whether all of the request is here, so that another can follow. What nobody wants of it is dropped."""
        if self._is_hopeless or self._is_complete:
            return self._is_complete
        if self._length() == 0 and "transfer-encoding" not in self.headers:
            return True
        if "expect" in self.headers or self._length() > DROPPED:
            return False
        dropped, until = 0, time.monotonic() + BODY_S
        try:
            while not self._is_complete and dropped <= DROPPED:
                dropped += len(await self._part(until))
        except HttpError:
            return False
        return self._is_complete

    async def _part(self, until: float) -> bytes:
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            self._is_hopeless = True
            raise HttpError(408, "too_slow", "the body did not arrive in time") from None
        if message["type"] == "http.disconnect":
            raise Gone
        self._is_complete = not message.get("more_body")
        part: bytes = message.get("body", b"")
        return part

    def _length(self) -> int:
        """What the body says of itself; 0 if it says nothing."""
        text = self.headers.get("content-length", "0")
        return int(text) if text.isdecimal() and len(text) < 19 else 1 << 62

    async def gone(self) -> None:
        """Returns when who asked has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


# Half of a character, in JSON: the decoder says that the input is truncated.
_HIGH, _LOW = rb"\\u[dD][89abAB]..", rb"\\u[dD][c-fC-F].."
SURROGATE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))


def _understood(data: bytes, endpoint: Endpoint, said: str) -> Any:
    """The body as what the endpoint takes, or InvalidInput, or TooLarge."""
    is_json = said == JSON
    try:
        if len(data) > LARGE:
            value = unpacked(data, endpoint.takes, is_json=is_json)
        else:
            value = (msgspec.json if is_json else msgspec.msgpack).decode(data, type=endpoint.takes)
        check_body(data, value, is_json=is_json)
        return value
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    except (InvalidInput, TooLarge):
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError) as error:
        if too_long := re.search(r"`array` of length <= (\d+) - at `\$\.(\w+)`", str(error)):
            raise too_many(too_long[2], int(too_long[1])) from None
        why = "a lone surrogate is not text" if is_json and SURROGATE.search(data) else error
        raise InvalidInput(f"the body is not what {endpoint.name} takes: {why}") from None


def _too_large(limit: int) -> HttpError:
    return HttpError(413, "too_large", f"the body is over the limit of {limit:,} bytes")


def _is_list(kind: Any) -> bool:
    return get_origin(kind.__origin__ if get_origin(kind) is Annotated else kind) in (tuple, list)


def _converted(values: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"the query string: {error}") from None


# ── which endpoint ──────────────────────────────────────────────────────────────────────────────────────────────────

_ROUTES: list[tuple[list[str], Endpoint]] = [
    (endpoint.path.split("/")[1:], endpoint) for endpoint in ENDPOINTS.values()
]
# Fixed words before names: /v1/jobs/wait is an endpoint, not a job.
_ROUTES.sort(key=lambda route: sum(part.startswith("{") for part in route[0]))


def route(method: str, segments: list[str]) -> tuple[Endpoint, dict[str, str]]:
    """The endpoint for a path, and the names in it. NotFound, or 405 with what is allowed."""
    wanted = "GET" if method == "HEAD" else method
    allowed: list[str] = []
    known = ""
    for parts, endpoint in _ROUTES:
        if len(parts) != len(segments):
            continue
        names = {}
        for part, segment in zip(parts, segments, strict=True):
            if part.startswith("{"):
                names[part[1:-1]] = segment
            elif part != segment:
                break
        else:
            if endpoint.method == wanted and not (endpoint.stream and method == "HEAD"):
                return endpoint, names
            if not allowed or endpoint.path == known:  # what is named most exactly says what it knows
                known = endpoint.path
                allowed.append(endpoint.method)
    if allowed:
        raise HttpError(
            405, "method_not_allowed", f"{method} is not for this path", [("allow", ", ".join(sorted(set(allowed))))]
        )
    raise NotFound("no such path; /openapi.json names all there are")


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def written(value: Any, speaks: str) -> tuple[bytes, str]:
    """(the body, what it is written in)."""
    if speaks == MSGPACK:
        try:
            return msgspec.msgpack.encode(value), MSGPACK
        except OverflowError:
            pass  # a job's result may hold a number that only JSON can write
    return msgspec.json.encode(value), JSON


def failed(code: str, message: str) -> Failed:
    return Failed(Failure(code, message))
