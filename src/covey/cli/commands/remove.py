"""covey remove: jobs that are gone, with all that is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..open_queue import open_queue
from ..options import Db, Json
from ..printing import answer, as_json
from ..selection import All, Batch, Label, Query, Queue, Refs, State, Yes, change_all, counted, is_selected, query_of
from .retry import when_stopped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.view import Change

PATIENCE_S = 30.0

Force = Annotated[bool, typer.Option("--force", help="Cancel what has not ended, wait until its processes are gone.")]


def remove(
    jobs: Refs = None,
    query: Query = None,
    queue: Queue = None,
    state: State = None,
    batch: Batch = None,
    label: Label = None,
    all: All = False,
    force: Force = False,
    yes: Yes = False,
    json: Json = False,
    db: Db = None,
) -> None:
    """Delete ended jobs, their history and output. Named ones: all or none."""
    from ...core.model import ENDED, STATES

    text = query_of(query, batch, queue, state, label)
    selected = is_selected(jobs, text, all)
    engine = open_queue(db)

    def remove_these(refs: Sequence[str | int]) -> list[Change]:
        return when_stopped(engine, lambda: engine.remove(refs, force=force), PATIENCE_S if force else 0.0)

    if selected:
        states: tuple[str, ...] = STATES if force else tuple(sorted(ENDED))
        changes = change_all(engine, text, states, remove_these, doing="remove", yes=yes)
    else:
        changes = remove_these(jobs or [])
    if json:
        as_json(changes)
        return
    if selected:
        answer(f"{counted(len(changes), 'job')} removed")
        return
    for change in changes:
        answer(f"{change.id} removed")
