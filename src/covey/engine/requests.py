"""Enqueues and registrations with a name of their own: sent twice because an answer was lost, written once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from ..core.machine import SECOND
from ..core.model import Enqueued, Spec
from ..errors import InvalidInput
from ..store.store import Store

KEPT = 3600 * SECOND


def named(request: str, token: int) -> str:
    """What a request is kept under: two clients that chose the same name do not get each other's answers."""
    return f"{token}:{request}" if token else request


def take(store: Store, request: str, specs: Sequence[Spec], now: int, token: int = 0) -> list[Enqueued] | None:
    """None: it is new, and ours until the transaction ends. Else what was answered the first time.

    Taken before anything is looked at: of two at the same instant the second waits here, and sees all or nothing of
    what the first one wrote.
    """
    asked = _digest(specs)
    id = named(request, token)
    if store.ask("take_request", id=id, digest=asked, now=now, since=now - KEPT):
        return None
    ((known, ids),) = store.ask("request", id=id)
    if known != asked:
        raise InvalidInput(f"the request {request!r} was answered before, but asked for other jobs; give it a new id")
    return [Enqueued(id, existing) for id, existing in json.loads(ids)]


def answer(store: Store, request: str, enqueued: Sequence[Enqueued], token: int = 0) -> None:
    """Whoever asks again hears this."""
    ids = json.dumps([(each.id, each.existing) for each in enqueued])
    store.ask("answer_request", id=named(request, token), ids=ids)


def registered(store: Store, ticket: str, now: int) -> int | None:
    """The pool that was registered with this ticket, though its answer was lost; None: it is new, or given up since."""
    id = f"register:{ticket}"
    if store.ask("take_request", id=id, digest="", now=now, since=now - KEPT):
        return None
    ((_, ids),) = store.ask("request", id=id)
    pool: int | None = next((pool for pool, _ in json.loads(ids)), None)
    return pool if pool is not None and store.value("pool_beat", pool=pool) is not None else None


def register(store: Store, ticket: str, pool: int) -> None:
    """Whoever comes with the ticket again is this pool."""
    store.ask("answer_request", id=f"register:{ticket}", ids=json.dumps([(pool, False)]))


def _digest(specs: Sequence[Spec]) -> str:
    return sha256(msgspec.json.encode(specs, order="deterministic")).hexdigest()
