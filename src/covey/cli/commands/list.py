"""covey list: a page of jobs, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidInput
from ..open_queue import open_queue
from ..options import Db, Json
from ..printing import as_json, note

if TYPE_CHECKING:
    from ...core.view import Page

State = Annotated[
    list[str] | None,
    typer.Option("--state", "-s", metavar="STATE", help="Only jobs in this state; several by comma or repetition."),
]
Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="Only jobs of this queue.")]
Task = Annotated[str | None, typer.Option("--task", metavar="NAME", help="Only jobs of this task.")]
Batch = Annotated[str | None, typer.Option("--batch", metavar="NAME", help="Only jobs of this batch.")]
Limit = Annotated[int, typer.Option("--limit", "-n", help="At most this many.")]
Before = Annotated[int | None, typer.Option("--before", metavar="ID", help="The page after this id.")]


def list_jobs(
    state: State = None,
    queue: Queue = None,
    task: Task = None,
    batch: Batch = None,
    limit: Limit = 50,
    before: Before = None,
    json: Json = False,
    db: Db = None,
) -> None:
    """List jobs, newest first."""
    from ...core.view import Filter

    check_filter(before, queue=queue, task=task, batch=batch)
    engine = open_queue(db)
    states = tuple(word.strip() for text in state or () for word in text.split(",") if word.strip())
    page = engine.jobs(Filter(states=states, queue=queue, task=task, batch=batch, limit=limit, before=before))
    show_page(page, json=json, nothing="no jobs")


def check_filter(before: int | None, **names: str | None) -> None:
    """InvalidInput for what no database could be asked."""
    from ...core.check import is_unicode

    for name, text in names.items():
        if text is not None and not is_unicode(text):
            raise InvalidInput(f"--{name} {text!r}: this is not UTF-8, so no job can have it")
    if before is not None and not -(2**63) <= before < 2**63:
        raise InvalidInput(f"--before {before}: an id, as in what `there is more` says")


def show_page(page: Page, *, json: bool, nothing: str) -> None:
    """The page is on stdout; what is missing from it is said on stderr."""
    if json:
        as_json(page.jobs)
    elif page.jobs:
        from .. import render

        render.jobs(page.jobs)
    else:
        note(nothing)
    if page.next is not None:
        note(f"there is more: --before {page.next}")
