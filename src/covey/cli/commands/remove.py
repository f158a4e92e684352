"""covey remove: jobs that are gone, with all that is known of them."""

from __future__ import annotations

from typing import Annotated

import typer

from ..open_queue import open_queue
from ..options import Db, Json, Refs
from ..printing import answer, as_json
from .retry import when_stopped

PATIENCE_S = 30.0

Force = Annotated[bool, typer.Option("--force", help="Cancel what has not ended, wait until its processes are gone.")]


def remove(jobs: Refs, force: Force = False, json: Json = False, db: Db = None) -> None:
    """Delete ended jobs, their history and output. All or none."""
    engine = open_queue(db)
    changes = when_stopped(engine, lambda: engine.remove(jobs, force=force), PATIENCE_S if force else 0.0)
    if json:
        as_json(changes)
        return
    for change in changes:
        answer(f"{change.id} removed")
