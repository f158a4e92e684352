"""covey retry: jobs that run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import StillStopping
from ..open_queue import listen_for_ends, open_queue
from ..options import Db, Json, Refs
from ..printing import answer, as_json, note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.ports import Client
    from ...core.view import Change

PATIENCE_S = 15.0  # the usual grace of a stopping job, and some

Again = Annotated[bool, typer.Option("--again", help="Queue ended jobs anew; prints the new ids.")]
All = Annotated[bool, typer.Option("--all", help="Start over: children are deleted and made again.")]


def retry(jobs: Refs, again: Again = False, all: All = False, json: Json = False, db: Db = None) -> None:
    """Run failed, dead or cancelled jobs again, at once. All or none."""
    engine = open_queue(db)
    changes = retry_when_stopped(engine, jobs, again=again, all=all)
    if json:
        as_json(changes)
        return
    for change in changes:
        answer(str(change.new_id) if again else f"{change.id} {change.state}, was {change.was}")


def retry_when_stopped(
    engine: Client, refs: Sequence[str | int], *, again: bool = False, all: bool = False
) -> list[Change]:
    """The jobs run again, once the processes of those just cancelled are gone."""
    return when_stopped(engine, lambda: engine.retry(refs, again=again, all=all), PATIENCE_S)


def when_stopped(engine: Client, change: Callable[[], list[Change]], patience_s: float) -> list[Change]:
    """The change is made, once the processes that stand in its way are gone; StillStopping if that takes too long."""
    import time

    deadline = time.monotonic() + patience_s
    told = False
    while True:
        try:
            return change()
        except StillStopping as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            if not told:
                note(f"{error}; waiting")
                told = True
        ear = listen_for_ends(engine)
        try:
            ear.wait(min(left, 0.2))
        finally:
            ear.close()
