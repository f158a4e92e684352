"""covey status: the queue at a glance."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from ...errors import NoQueue, StoreError
from ..open_queue import NONE_YET, database, open_queue
from ..options import Db, Json
from ..printing import as_json, decide, note

if TYPE_CHECKING:
    from ...core.view import Finding, Status

NOBODY = "none; `covey worker start`"
CODES = {"fine": 0, "warning": 1, "broken": 2}


Check = Annotated[
    bool,
    typer.Option("--check", help="For monitors: exit 1 if something is odd, 2 if it is broken or missing."),
]


Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every second, until Ctrl-C.")]
EVERY_S = 1.0


def status(check: Check = False, watch: Watch = False, json: Json = False, db: Db = None) -> int:
    """Say which queue this is, what is in it, who works on it, and whether all is well.

    Exits 0 when it could answer, 2 when the queue cannot be read. With --check the code says how the queue is: 0 fine,
    1 something needs attention, 2 broken or missing.
    """
    from ...open import shown

    url = database(db)
    try:
        queue = open_queue(url)
        found = queue.status()
        while watch and not json:
            _show_anew(found, db)
            time.sleep(EVERY_S)
            found = queue.status()
    except (StoreError, OSError) as error:
        if isinstance(error, NoQueue) and not check:
            text = NONE_YET.format(shown(url))
            if json:
                as_json(_unreadable(shown(url), text, "fine"))
            note(text)
            return 0
        broken = _explained(error)
        if json:
            as_json(_unreadable(url, str(broken)))
        raise broken from None
    code = decide(CODES[found.health] if check else 0)
    if json:
        as_json(found)
    else:
        _show(found, db)
    return code


def _show_anew(found: Status, db: str | None) -> None:
    """Where it was shown before, on a terminal; below that where somebody keeps what is written."""
    sys.stdout.write("\x1b[H\x1b[J" if sys.stdout.isatty() else "\n")
    _show(found, db)
    sys.stdout.flush()


def _explained(error: StoreError | OSError) -> StoreError:
    """The same as one line that ends the command with the code of a broken queue."""
    if not isinstance(error, StoreError):
        error = StoreError(f"the queue cannot be read: {error}")
    error.exit_code = CODES["broken"]
    return error


def _unreadable(url: str, text: str, health: str = "broken") -> dict[str, Any]:
    """A Status of which nothing is known but that it is broken, or that there is none yet."""
    from ... import __version__
    from ...core.view import Finding, Status

    known = {
        "database": url,
        "version": __version__,
        "health": health,
        "notes": [text],
        "findings": [Finding(level="broken" if health == "broken" else "note", text=text)],
        "counts": {},
        "queues": [],
        "pools": 0,
        "workers": 0,
    }
    return {field: known.get(field) for field in Status.__struct_fields__}


def _show(found: Status, db: str | None) -> None:
    from ...core.times import span
    from ...engine.health import sentence
    from .. import render
    from ..pasting import pasteable

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
