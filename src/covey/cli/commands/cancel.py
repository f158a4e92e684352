"""covey cancel: jobs that will not run any more."""

from __future__ import annotations

from ..open_queue import open_queue
from ..options import Db, Json, Refs
from ..printing import answer, as_json


def cancel(jobs: Refs, json: Json = False, db: Db = None) -> None:
    """Cancel jobs: what waits never starts, what runs is stopped with all its processes. All or none."""
    engine = open_queue(db)
    changes = engine.cancel(jobs)
    if json:
        as_json(changes)
        return
    for change in changes:
        answer(f"{change.id} cancelled" + (", its processes are being stopped" if change.was == "processing" else ""))
