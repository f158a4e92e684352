"""One request, understood, and what a token for some queues only may ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from ...core import bodies
from ...core.ports import Backend
from ...core.view import JobView
from ...errors import Forbidden, NotFound
from ..auth import Identity


class ApiCall(Struct):
    """One request, understood."""

    guest: Identity
    names: dict[str, str]
    query: Any
    body: Any
    admit: Callable[[], Awaitable[Identity]]  # whoever has waited must still be somebody who may

    @property
    def pool(self) -> int:
        return number(self.names["pool"], "pool")


Verb = Callable[[Backend, ApiCall], Any]


def number(text: str, what: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise NotFound(f"no {what} {text[:40]!r}")
    return int(text)


def check_queues(guest: Identity, queues: Iterable[str] | None) -> None:
    if guest.queues is None:
        return
    allowed = ", ".join(guest.queues)
    if queues is None:
        raise Forbidden(f"this token is for {allowed} only; name the queues that are wanted")
    if strange := [queue for queue in queues if queue not in guest.queues]:
        raise Forbidden(f"this token is for {allowed} only, not for {strange[0]}")


def check_jobs(engine: Backend, guest: Identity, refs: Sequence[bodies.Ref]) -> None:
    """All of them are the asker's business; else it is as if there were none."""
    if guest.queues is None:
        return
    wanted = list(dict.fromkeys(map(str, refs)))
    found = engine.queues_of(wanted)
    if strange := [ref for ref in wanted if ref not in found or not guest.may_see(found[ref])]:
        raise NotFound(f"no job {strange[0]!r}; `covey list` shows what there is")


def seen_job(engine: Backend, guest: Identity, ref: bodies.Ref) -> JobView:
    """The job, unless it is none of the asker's business: then it is as if there were none."""
    if guest.queues is not None:
        check_jobs(engine, guest, [ref])  # in the same words, whether there is none or another's
    return engine.job(ref)
