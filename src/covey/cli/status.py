"""covey status: the queue at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .opening import open_queue
from .options import Db, Json
from .output import as_json

if TYPE_CHECKING:
    from ..core.view import Status

BROKEN = 2  # exit code of a queue that cannot be used; warnings are 0, so that scripts can look without tripping


def status(json: Json = False, db: Db = None) -> int:
    """Say which queue this is, what is in it, who works on it, and whether all is well.

    Exits 0, also with warnings; 2 if the queue is broken.
    """
    engine = open_queue(db)
    found = engine.status()
    if json:
        as_json(found)
    else:
        _show(found)
    return BROKEN if found.health == "broken" else 0


def _show(found: Status) -> None:
    from . import render
    from .times import span

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
            ("workers", f"{found.workers} in {found.pools} pools" if found.pools else "none; `covey worker start`"),
            ("health", render.state(found.health)),
            *(("", text) for text in found.notes),
        ]
    )
    if found.queues:
        print()
        from .queue import show_queues

        show_queues(found.queues)
