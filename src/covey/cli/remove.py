"""covey remove: jobs that are gone, with all that is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import Refused
from .opening import open_queue
from .options import Db, Json, Refs
from .output import answer, as_json, note

if TYPE_CHECKING:
    from ..core.ports import Client

PATIENCE_S = 30.0

Force = Annotated[bool, typer.Option("--force", help="Cancel what has not ended, wait until its processes are gone.")]


def remove(jobs: Refs, force: Force = False, json: Json = False, db: Db = None) -> None:
    """Delete ended jobs, their history and output. All or none."""
    engine = open_queue(db)
    if force:
        _stop(engine, jobs)
    changes = engine.remove(jobs, force=force)
    if json:
        as_json(changes)
        return
    for change in changes:
        answer(f"{change.id} removed")


def _stop(engine: Client, refs: list[str]) -> None:
    """Nothing of these jobs runs any more; Refused if that takes too long."""
    import time

    from ..core.model import ENDED
    from .retry import wait_for_change

    views = [engine.job(ref) for ref in refs]
    open_jobs = [view.id for view in views if view.state not in ENDED]
    if open_jobs:
        engine.cancel(open_jobs)
    deadline = time.monotonic() + PATIENCE_S
    told = False
    while stopping := [view.id for view in map(engine.job, refs) if view.pool is not None]:
        if not told:
            note(f"waiting until the processes of job {', '.join(map(str, stopping))} are gone")
            told = True
        if time.monotonic() > deadline:
            raise Refused(f"job {stopping[0]} is cancelled but still stopping; remove it once its processes are gone")
        wait_for_change(engine, 0.2)
