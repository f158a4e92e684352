"""covey logs: what a job wrote, stdout on stdout and stderr on stderr, there also the traceback of a Python task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...core.model import ENDED
from ...errors import NotFound
from ..open_queue import open_queue
from ..options import Db, Json, Ref
from ..printing import as_json, note, safe

if TYPE_CHECKING:
    from ...core.ports import Client
    from ...core.view import Attempt, JobView

Number = Annotated[int | None, typer.Option("--attempt", metavar="N", help="That attempt instead of the last.")]
All = Annotated[bool, typer.Option("--all", help="Every attempt, oldest first.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]


def logs(
    job: Ref, attempt: Number = None, all: All = False, follow: Follow = False, json: Json = False, db: Db = None
) -> None:
    """Print what a job wrote: its stdout on stdout, its stderr and the traceback of a Python task on stderr."""
    engine = open_queue(db)
    view = engine.job(job)
    history = engine.history(view.id)
    if attempt is not None and not any(run.number == attempt for run in history):
        raise NotFound(f"job {view.id} has no output of attempt {attempt}; it has of: {_numbers(history) or 'none'}")
    if json:
        as_json([run for run in history if all or run in _chosen(history, attempt)])
    elif follow:
        _follow(engine, view, history, all)
    else:
        _print(engine, view, history, attempt, all)


def _print(engine: Client, view: JobView, history: list[Attempt], attempt: int | None, all: bool) -> None:
    from ..follow import LiveRun, write_attempt

    running = view.state == "processing" and attempt is None
    runs = history if all else [] if running else _chosen(history, attempt)
    for run in runs:
        if all:
            note(f"covey: attempt {run.number}, {run.outcome}" + (f": {safe(run.error)}" if run.error else ""))
        write_attempt(run)
        if not (all or run.stdout or run.stderr or run.detail):
            note(f"covey: attempt {run.number} wrote nothing; {_ending(run)}")
    if attempt is None and not all and view.state == "completed" and runs and runs[-1].fence != view.fence:
        note(f"covey: this is from before; the attempt with which job {view.id} completed wrote nothing")
    if running:
        LiveRun(engine, view.id, view.fence).poll()
    elif not runs:
        note(f"covey: job {view.id} is {view.state} and has written nothing")


def _follow(engine: Client, view: JobView, history: list[Attempt], all: bool) -> None:
    from ..follow import follow

    seen = set() if all else {run.fence for run in history}
    if history and view.state in ENDED and not all:
        seen.discard(history[-1].fence)
    follow(engine, view.id, seen=seen)


def _ending(run: Attempt) -> str:
    return f"it ended with {run.outcome}" + (f": {safe(run.error)}" if run.error else "")


def _chosen(history: list[Attempt], attempt: int | None) -> list[Attempt]:
    """The last attempt, or the last of that number: after a retry by hand, numbers begin anew."""
    runs = [run for run in history if attempt is None or run.number == attempt]
    return runs[-1:]


def _numbers(history: list[Attempt]) -> str:
    return ", ".join(dict.fromkeys(str(run.number) for run in history))
