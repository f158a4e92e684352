"""covey list: a page of jobs, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidInput
from ..open_queue import open_to_look
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
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[QUERY]", help='As in state:dead queue:mail age:>1h error:"boom"; all must hold.', show_default=False
    ),
]
Query = Annotated[str | None, typer.Option("--query", metavar="QUERY", help="The same as an option.")]
Limit = Annotated[int, typer.Option("--limit", "-n", help="At most this many.")]
Before = Annotated[int | None, typer.Option("--before", metavar="ID", help="The page after this id.")]


def list_jobs(
    words: Words = None,
    query: Query = None,
    state: State = None,
    queue: Queue = None,
    task: Task = None,
    batch: Batch = None,
    limit: Limit = 50,
    before: Before = None,
    json: Json = False,
    db: Db = None,
) -> None:
    """List jobs, newest first.

    covey list state:dead queue:mail          words that must all hold

    covey list 'age:>1h tries:>2' 'task:report.*' label.tenant:t7

    covey list 'error:"no such file"' tree:10 worker:3 "any text"
    """
    from ...core.view import Filter, Page

    check_filter(before, queue=queue, task=task, batch=batch)
    states = tuple(word.strip() for text in state or () for word in text.split(",") if word.strip())
    text = " ".join([*(words or ()), *([query] if query else [])])
    engine = open_to_look(db)
    if engine is None:
        show_page(Page([], None), json=json, nothing="")
        return
    page = engine.jobs(
        Filter(states=states, queue=queue, task=task, batch=batch, limit=limit, before=before, query=text)
    )
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
    elif nothing:
        note(nothing)
    if page.looked_to is not None:
        note(f"looked at jobs down to {page.looked_to:,}; look further: --before {page.looked_to}")
    elif page.next is not None:
        note(f"there is more: --before {page.next}")
