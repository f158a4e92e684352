"""Who may come in: names by which this server may be called, pages that may ask, tokens and what they allow."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..core import tokens
from ..core.endpoints import Endpoint
from ..core.tokens import Role
from ..engine.engine import Engine
from ..errors import Forbidden, Unauthorized
from .engine_threads import Desk
from .request import HttpError, Request

KNOWN_S = 1.0  # for how long the tokens that were read count: so soon a revoked one is refused
UNKNOWN_S = 0.1  # how old they may be when somebody comes whom they do not name
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
CONTAINER_NAMES = ("host.docker.internal", "host.containers.internal")


class Guest(Struct, frozen=True):
    """Who asks, as far as we know."""

    role: Role
    queues: tuple[str, ...] | None = None  # None: all
    token: int = 0  # its id; 0: came without one

    def may_see(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


class Gatekeeper:
    def __init__(self, desk: Desk, *, names: Iterable[str], is_local: bool, needs_token: bool) -> None:
        self._desk = desk
        self._names = {name.lower() for name in (*LOCAL_NAMES, *names) if name}
        self._names |= set() if is_local else {*CONTAINER_NAMES}
        self._is_local, self._needs_token = is_local, needs_token
        self._rows: dict[int, tokens.TokenRow] = {}
        self._now = 0
        self._read_at = -KNOWN_S
        self._reading = asyncio.Lock()

    def check_place(self, request: Request) -> None:
        """Not called by a name that somebody else gave us, and not by somebody else's page."""
        if len(request.hosts) != 1 or not self._is_ours(request.hosts[0]):
            raise HttpError(421, "wrong_host", "this server is not called that; start it with --allow-host NAME")
        if request.method in ("GET", "HEAD"):
            return
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2].lower() != request.hosts[0].lower()
        if site not in (None, "same-origin", "none") or foreign:
            raise Forbidden("another site's page may not change anything here")

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        if name in self._names:
            return True
        # A page can give its own name our address, but it cannot call itself by a number.
        return not self._is_local and _is_address(name)

    async def admit(self, request: Request, endpoint: Endpoint) -> Guest:
        """Who asks; Unauthorized or Forbidden if that is nobody who may."""
        guest = await self._guest(request)
        if endpoint.role is not None and not tokens.may(guest.role, endpoint.role):
            raise Forbidden(f"a token of the role {guest.role} may not do this; it takes {endpoint.role}")
        if guest.queues is not None and not endpoint.scoped:
            raise Forbidden("a token for some queues only may not do this; it takes one for all queues")
        return guest

    async def _guest(self, request: Request) -> Guest:
        said = request.headers.get("authorization")
        if said is None:
            if self._needs_token:
                raise Unauthorized("a token is needed; pass it as `Authorization: Bearer …`")
            return Guest("admin")
        scheme, _, text = said.partition(" ")
        found = tokens.parse(text.strip()) if scheme.lower() == "bearer" else None
        await self._read(KNOWN_S)
        id, secret = found or (0, "")
        if id and id not in self._rows:  # made a moment ago, perhaps
            await asyncio.sleep(UNKNOWN_S - (time.monotonic() - self._read_at))
            await self._read(UNKNOWN_S)
        row = self._rows.get(id)
        verdict = tokens.verdict(row, secret, self._now + int((time.monotonic() - self._read_at) * 1e6))
        if verdict != "ok" or row is None:
            raise Unauthorized(_WORDS.get(verdict, _WORDS["wrong"]))
        return Guest(row.role, row.queues, row.id)

    async def _read(self, oldest_s: float) -> None:
        if time.monotonic() - self._read_at < oldest_s:
            return
        async with self._reading:  # a hundred streams that ask in the same moment read them once
            if time.monotonic() - self._read_at >= oldest_s:
                await self._read_rows()

    async def _read_rows(self) -> None:
        def read(engine: Engine) -> tuple[list[tokens.TokenRow], int]:
            return engine.token_rows(), engine.clock()

        asked_at = time.monotonic()  # what is read may be as old as the question
        rows, self._now = await self._desk.ask(read)
        self._rows = {row.id: row for row in rows}
        self._read_at = asked_at


_WORDS = {
    "wrong": "the token is not known here; `covey token list` shows which are",
    "expired": "the token has expired; `covey token create` makes another",
    "revoked": "the token was revoked; `covey token create` makes another",
}


def _name_of(host: str) -> str:
    """Without the port, in lower case; an address without its brackets."""
    text = host.strip().lower()
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        return name if bracket and (not port or port.startswith(":")) else ""
    name, _, port = text.partition(":")
    return name if not port or port.isdecimal() else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(hosts: Sequence[str]) -> bool:
    """Whether nobody but this machine can reach any of these addresses."""
    return all(host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback) for host in hosts)
