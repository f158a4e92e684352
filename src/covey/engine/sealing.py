"""A sealed queue: it has moved, or it is a copy that is not finished. Reads go on, every writer is told so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..core.view import Finding
from ..errors import Refused
from ..store.dialect import STILL_S
from ..store.store import Store

# What a seal says, followed by the URL of the other place; else it is the URL that took over.
UNFINISHED = "unfinished copy of "
LEAVING = "being copied to "
AGAIN = "run the same `covey db copy` again to finish it, or with --abort to give it up"


@contextmanager
def writing(
    store: Store, *, alone: bool = False, wait_s: float | None = None, still_s: float = STILL_S
) -> Iterator[None]:
    """A transaction of a queue that is not sealed. Nobody can seal it before the end."""
    with store.dialect.transaction(alone=alone, wait_s=wait_s, still_s=still_s):
        (_, _, sealed), *_ = store.ask("meta")
        refuse(sealed)
        yield


def is_sealed(store: Store) -> bool:
    return store.ask("meta")[0][2] is not None


def refusal(sealed: str | None) -> Refused | None:
    return Refused("; ".join(_said(sealed))) if sealed else None


def refuse(sealed: str | None) -> None:
    """Refused, if there is a seal."""
    if refused := refusal(sealed):
        raise refused


def finding(sealed: str) -> Finding:
    text, advice = _said(sealed)
    return Finding(level="warning", text=text, advice=advice)


def is_unfinished(sealed: str | None) -> bool:
    return sealed is not None and sealed.startswith(UNFINISHED)


def destination(sealed: str | None) -> str | None:
    """Where the queue went or is on its way; None if it has not left."""
    return None if sealed is None or is_unfinished(sealed) else sealed.removeprefix(LEAVING)


def has_left(sealed: str | None) -> bool:
    """Whether the copy was finished, and its place may be in use."""
    return sealed is not None and not sealed.startswith((LEAVING, UNFINISHED))


def _said(sealed: str) -> tuple[str, str]:
    if is_unfinished(sealed):
        return f"this queue is an {sealed}", AGAIN
    if not has_left(sealed):
        return f"this queue is {sealed}, and that is not finished", f"{AGAIN}, if nobody is at it"
    return f"this queue has moved to {sealed}", "use that one"
