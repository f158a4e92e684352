"""covey status: the queue at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from ...errors import StoreError
from ..open_queue import database, open_queue
from ..options import Db, Json
from ..printing import as_json, decide

if TYPE_CHECKING:
    from ...core.view import Finding, Status

NOBODY = "none; `covey worker start`"
CODES = {"fine": 0, "warning": 1, "broken": 2}


def status(json: Json = False, db: Db = None) -> int:
    """Say which queue this is, what is in it, who works on it, and whether all is well.

    Exits 0 if it is fine, 1 if something needs attention, 2 if it is broken.
    """
    url = database(db)
    try:
        found = open_queue(url).status()
    except (StoreError, OSError) as error:
        broken = _explained(error)
        if json:
            as_json(_unreadable(url, str(broken)))
        raise broken from None
    code = decide(CODES[found.health])
    if json:
        as_json(found)
    else:
        _show(found, db)
    return code


def _explained(error: StoreError | OSError) -> StoreError:
    """The same as one line that ends the command with the code of a broken queue."""
    if not isinstance(error, StoreError):
        error = StoreError(f"the queue cannot be read: {error}")
    error.exit_code = CODES["broken"]
    return error


def _unreadable(url: str, text: str) -> dict[str, Any]:
    """A Status of which nothing is known but that it is broken."""
    from ... import __version__
    from ...core.view import Finding, Status

    known = {
        "database": url,
        "version": __version__,
        "health": "broken",
        "notes": [text],
        "findings": [Finding(level="broken", text=text)],
        "counts": {},
        "queues": [],
        "pools": 0,
        "workers": 0,
    }
    return {field: known.get(field) for field in Status.__struct_fields__}


def _show(found: Status, db: str | None) -> None:
    from ...engine.health import sentence
    from .. import render
    from ..pasting import pasteable
    from ..times import span

    counts = ", ".join(f"{count:,} {state}" for state, count in found.counts.items() if count)
    render.facts(
        [
            ("database", found.database),
            (
                "durability",
                found.durability + ("" if found.durability == "full" else " (a power cut may undo the last moments)"),
            ),
            ("jobs", counts or "none"),
            ("oldest wait", None if found.oldest_pending_s is None else span(found.oldest_pending_s)),
            ("next start", found.next_run_at),
            ("workers", f"{found.workers} in {_pools(found.pools)}" if found.pools else pasteable(NOBODY, db)),
            ("health", render.state(found.health)),
            *((finding.level, sentence(_complete(finding, db))) for finding in found.findings),
        ]
    )
    if found.queues:
        print()
        from .queue import show_queues

        show_queues(found.queues)


def _complete(finding: Finding, db: str | None) -> Finding:
    from ..pasting import pasteable

    return structs.replace(finding, advice=finding.advice and pasteable(finding.advice, db))


def _pools(count: int) -> str:
    return "1 pool" if count == 1 else f"{count} pools"
