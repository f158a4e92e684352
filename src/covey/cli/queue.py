"""covey queue: list, pause and resume queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .opening import open_queue
from .options import Db, Json
from .output import answer, as_json, note

if TYPE_CHECKING:
    from ..core.view import QueueView

Names = Annotated[list[str], typer.Argument(metavar="QUEUE...", help="Names of queues.", show_default=False)]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Resume by itself after 90s, 2h, 1d.")]


def list_queues(json: Json = False, db: Db = None) -> None:
    """List queues and what is in them."""
    engine = open_queue(db)
    found = engine.queues()
    if json:
        as_json(found)
    elif found:
        show_queues(found)
    else:
        note("no queues yet; the first job makes one")


def show_queues(found: Sequence[QueueView]) -> None:
    """A table of queues is on stdout, with the states that occur."""
    from ..core.model import STATES
    from . import render

    states = [state for state in STATES if state == "pending" or any(view.counts.get(state) for view in found)]
    paused = ["PAUSED"] if any(view.paused for view in found) else []
    render.table(
        ["QUEUE", *(state.upper() for state in states), *paused],
        [
            (view.name, *(view.counts.get(state) or "." for state in states), *([_pause_of(view)] if paused else []))
            for view in found
        ],
        wide="QUEUE",
    )


def _pause_of(view: QueueView) -> str:
    if not view.paused:
        return ""
    return f"until {view.resume_at}" if view.resume_at else "yes"


def pause(queue: Names, for_: For = None, db: Db = None) -> None:
    """Start nothing more of these queues until they are resumed. What runs goes on."""
    from ..core.times import seconds

    for_s = None if for_ is None else seconds(for_, "--for")
    engine = open_queue(db)
    for name in queue:
        engine.pause(name, for_s)
        answer(f"paused {name}" + (f" for {for_}" if for_ else ""))


def resume(queue: Names, db: Db = None) -> None:
    """Let paused queues go on."""
    engine = open_queue(db)
    for name in queue:
        engine.resume(name)
        answer(f"resumed {name}")
