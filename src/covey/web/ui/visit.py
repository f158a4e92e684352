"""One request as a page sees it: who looks, at which address, and the questions that may be asked for him."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from ...core.endpoints import ENDPOINTS
from ...core.ports import Backend
from ...errors import Forbidden
from ..api import VERBS
from ..api.call import ApiCall
from ..auth import Identity, refuse

Query = dict[str, str]


def address(prefix: str, *parts: str | int, **query: Any) -> str:
    said = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None and value != ""}
    path = "/".join((f"{prefix}/ui", *(quote(str(part), safe="") for part in parts)))
    return path + (f"?{urlencode(said)}" if said else "")


class Visitor(Struct, frozen=True, kw_only=True):
    """Who looks, and how he came in."""

    guest: Identity
    name: str  # of his token, or what he is without one
    csrf: str  # every form carries it
    has_session: bool = False


class Visit:
    """The engine is asked through the endpoints of the HTTP interface, with the role and the queues that these ask for:
    a page shows and does nothing that its visitor could not have asked for himself."""

    def __init__(
        self,
        engine: Backend,
        visitor: Visitor,
        *,
        prefix: str,
        path: Sequence[str],
        query: Query,
        names: dict[str, str],
    ) -> None:
        self.engine, self.visitor, self.guest = engine, visitor, visitor.guest
        self.prefix, self.path, self.query, self.names = prefix, path, query, names
        self.now = engine.clock()

    def url(self, *parts: str | int, **query: Any) -> str:
        """The address of a page below /ui. Every link is made here; a name may have a slash in it."""
        return address(self.prefix, *parts, **query)

    def here(self, **changed: Any) -> str:
        """This page's address with other parameters."""
        return self.url(*self.path, **{**self.query, **changed})

    def may(self, name: str) -> bool:
        """Whether this visitor may use that endpoint at all."""
        try:
            refuse(self.guest, ENDPOINTS[name])
        except Forbidden:
            return False
        return True

    def ask(self, name: str, /, *, query: Any = None, body: Any = None, **names: str) -> Any:
        """What that endpoint answers."""
        endpoint = ENDPOINTS[name]
        refuse(self.guest, endpoint)
        return VERBS[name](self.engine, ApiCall(self.guest, names, query, body, _nobody_waits))


async def _stays() -> Identity:
    raise NotImplementedError("a page does not wait")


_nobody_waits: Callable[[], Awaitable[Identity]] = _stays
