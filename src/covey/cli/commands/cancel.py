"""covey cancel: jobs that will not run any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..open_queue import open_queue
from ..options import Db, Json
from ..printing import answer, as_json
from ..selection import All, Batch, Label, Query, Queue, Refs, State, Yes, change_all, counted, is_selected, query_of

if TYPE_CHECKING:
    from ...core.view import Change


def cancel(
    jobs: Refs = None,
    query: Query = None,
    queue: Queue = None,
    state: State = None,
    batch: Batch = None,
    label: Label = None,
    all: All = False,
    yes: Yes = False,
    json: Json = False,
    db: Db = None,
) -> None:
    """Cancel jobs: what waits never starts, what runs is stopped with all its processes. Named ones: all or none."""
    from ...core.model import ENDED, STATES

    text = query_of(query, batch, queue, state, label)
    selected = is_selected(jobs, text, all)
    engine = open_queue(db)
    if selected:
        live = tuple(each for each in STATES if each not in ENDED)
        changes = change_all(engine, text, live, engine.cancel, doing="cancel", yes=yes)
    else:
        changes = engine.cancel(jobs or [])
    if json:
        as_json(changes)
    elif selected:
        answer(f"{counted(len(changes), 'job')} cancelled")
    else:
        _say(changes)


def _say(changes: list[Change]) -> None:
    for change in changes:
        answer(f"{change.id} cancelled" + (", its processes are being stopped" if change.was == "processing" else ""))
