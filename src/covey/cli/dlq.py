"""covey dlq: dead letters, which are the jobs in state dead and no second store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidInput, Refused
from .list import Before, Limit, Queue, show_page
from .opening import open_queue
from .options import Db, Json, Ref
from .output import answer, as_json, note

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..core.view import Change, JobView

SOME = 500  # jobs changed in one transaction

Refs = Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Ids or keys.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every dead letter.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def list_dead(queue: Queue = None, limit: Limit = 50, before: Before = None, json: Json = False, db: Db = None) -> None:
    """List dead letters, newest first, and what they died of."""
    from ..core.view import Filter

    engine = open_queue(db)
    page = engine.jobs(Filter(states=("dead",), queue=queue, limit=limit, before=before))
    if json or not page.jobs:
        show_page(page, json=json, nothing="no dead letters")
        return
    import time

    from . import render
    from .times import age

    now = time.time()
    render.table(
        ["ID", "QUEUE", "TRIES", "DIED", "ERROR", "WHAT"],
        [
            (job.id, job.queue, job.attempts, age(job.finished_at, now), job.error, render.what(job))
            for job in page.jobs
        ],
        wide="WHAT",
    )
    if page.next is not None:
        note(f"there is more: --before {page.next}")


def show(job: Ref, json: Json = False, db: Db = None) -> None:
    """Show one dead letter with its history."""
    from .show import show_job, with_history

    engine = open_queue(db)
    view = _dead(engine, job)
    history = engine.history(view.id)
    if json:
        as_json(with_history(view, history))
    else:
        show_job(view, history)


def retry(jobs: Refs = None, all: All = False, queue: Queue = None, json: Json = False, db: Db = None) -> None:
    """Run dead letters again, with a fresh count of attempts. With ids: all or none."""
    engine = open_queue(db)
    changes: list[Change] = []
    for some in _pages(engine, jobs, all, queue):
        changes += engine.retry(some)
    if json:
        as_json(changes)
        return
    for change in changes:
        answer(f"{change.id} {change.state}")
    if not changes:
        note("no dead letters")


def purge(
    jobs: Refs = None, all: All = False, queue: Queue = None, yes: Yes = False, json: Json = False, db: Db = None
) -> None:
    """Delete dead letters for good."""
    engine = open_queue(db)
    pages = list(_pages(engine, jobs, all, queue))
    count = sum(map(len, pages))
    if count and not yes:
        _ask(count)
    changes: list[Change] = []
    for some in pages:
        changes += engine.remove(some)
    if json:
        as_json(changes)
    elif changes:
        answer(f"{len(changes)} removed")
    else:
        note("no dead letters")


def _ask(count: int) -> None:
    if not sys.stdin.isatty():
        raise Refused(f"{count} dead letters would be deleted for good; say --yes to do it")
    typer.confirm(f"delete {count} dead letters for good?", abort=True, err=True)


def _pages(engine: Client, refs: list[str] | None, all: bool, queue: str | None) -> Iterator[list[int]]:
    """Ids of the dead letters that are meant, some at a time; those named must be dead, every one."""
    from ..core.view import Filter

    if bool(refs) == (all or queue is not None):
        raise InvalidInput("name the dead letters, or say --all (with --queue for those of one queue)")
    if refs:
        yield list(dict.fromkeys(_dead(engine, ref).id for ref in refs))
        return
    before: int | None = None
    while True:
        page = engine.jobs(Filter(states=("dead",), queue=queue, limit=SOME, before=before))
        if page.jobs:
            yield [job.id for job in page.jobs]
        if page.next is None:
            return
        before = page.next


def _dead(engine: Client, ref: str) -> JobView:
    view = engine.job(ref)
    if view.state != "dead":
        raise Refused(
            f"job {view.id} is {view.state}, not a dead letter; `covey retry` and `covey remove` take any job"
        )
    return view
