"""covey dlq: dead letters, which are the jobs in state dead and no second store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidInput, Refused
from ..open_queue import open_queue
from ..options import Db, Json, Ref
from ..printing import answer, as_json, note
from .list import Before, Limit, Queue, check_filter, show_page

if TYPE_CHECKING:
    from ...core.ports import Client
    from ...core.view import Change, JobView

SOME = 500  # jobs changed in one transaction

Refs = Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Ids or keys.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every dead letter.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def list_dead(queue: Queue = None, limit: Limit = 50, before: Before = None, json: Json = False, db: Db = None) -> None:
    """List dead letters, newest first, and what they died of."""
    from ...core.view import Filter

    check_filter(before, queue=queue)
    engine = open_queue(db)
    page = engine.jobs(Filter(states=("dead",), queue=queue, limit=limit, before=before))
    if json or not page.jobs:
        show_page(page, json=json, nothing="no dead letters")
        return
    import time

    from .. import render
    from ..times import age

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
    """Run dead letters again, with a fresh count of attempts. With ids: all or none. --all skips what cannot run."""
    engine = open_queue(db)
    if _are_named(jobs, all, queue):
        changes = engine.retry(_named(engine, jobs))
    else:
        skipped: list[str] = []
        changes = [
            change
            for page in _pages(engine, queue)
            for change in _possible(engine, engine.retry, [job.id for job in page], skipped)
        ]
        _say_skipped(skipped, done=bool(changes))
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
    """Delete dead letters for good. With ids: all or none. --all skips children whose root stays."""
    engine = open_queue(db)
    if _are_named(jobs, all, queue):
        ids = _named(engine, jobs)
        if not yes:
            _ask(len(ids))
        changes = engine.remove(ids)
    else:
        changes = _purge(engine, queue, yes=yes)
    if json:
        as_json(changes)
    elif changes:
        answer(f"{len(changes)} removed")
    else:
        note("no dead letters")


def _purge(engine: Client, queue: str | None, *, yes: bool) -> list[Change]:
    """All dead roots are gone, and the dead letters below them; what else is dead is kept and said."""
    from ...core.view import Change

    found = [(job.id, job.parent_id, job.root_id) for page in _pages(engine, queue) for job in page]
    roots = [id for id, parent, _ in found if parent is None]
    below: dict[int, list[int]] = {root: [] for root in roots}
    skipped: list[str] = []
    for id, parent, root in found:
        if parent is None:
            continue
        if root in below:
            below[root].append(id)
        else:
            skipped.append(f"job {id} is a child; remove its root {root} instead")
    if roots and not yes:
        _ask(len(found) - len(skipped))
    changes: list[Change] = []
    for first in range(0, len(roots), SOME):
        for change in _possible(engine, engine.remove, roots[first : first + SOME], skipped):
            if change.state == "removed":
                changes += [change, *(Change(id, "removed", "dead") for id in below[change.id])]
            else:
                skipped.append(f"job {change.id} is {change.state} by now")
    _say_skipped(skipped, done=bool(changes))
    return changes


def _possible(
    engine: Client, change: Callable[[list[int]], list[Change]], ids: list[int], skipped: list[str]
) -> list[Change]:
    """What can be done of it is done; the others' reasons are in ``skipped``.

    One transaction, unless it is refused: then halves, so that a few bad ones among many cost few transactions.
    """
    from ...core.view import Change, Filter

    try:
        return change(ids)
    except Refused as error:
        if len(ids) == 1:
            skipped.append(str(error))
            return []
    ids = sorted(ids)  # parents first: what is done to them includes their children
    changes = _possible(engine, change, ids[: len(ids) // 2], skipped)
    rest = ids[len(ids) // 2 :]
    states = {job.id: job.state for job in engine.jobs(Filter(ids=tuple(rest), limit=len(rest))).jobs}
    changes += [Change(id, states[id], "dead") for id in rest if states.get(id, "dead") != "dead"]
    still = [id for id in rest if states.get(id) == "dead"]
    return changes + (_possible(engine, change, still, skipped) if still else [])


def _say_skipped(skipped: list[str], *, done: bool) -> None:
    """One line; Refused if nothing was done at all."""
    if not skipped:
        return
    others = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    line = f"{len(skipped)} skipped: {skipped[0]}{others}"
    if not done:
        raise Refused(line)
    note(line)


def _ask(count: int) -> None:
    if not sys.stdin.isatty():
        raise Refused(f"{count} dead letters would be deleted for good; say --yes to do it")
    typer.confirm(f"delete {count} dead letters for good?", abort=True, err=True)


def _are_named(refs: list[str] | None, all: bool, queue: str | None) -> bool:
    """Whether single dead letters are meant; InvalidInput unless it is either they or all."""
    if bool(refs) == (all or queue is not None):
        raise InvalidInput("name the dead letters, or say --all (with --queue for those of one queue)")
    check_filter(None, queue=queue)
    return bool(refs)


def _named(engine: Client, refs: list[str] | None) -> list[int]:
    """The ids of dead letters; those named must be dead, every one."""
    return list(dict.fromkeys(_dead(engine, ref).id for ref in refs or ()))


def _pages(engine: Client, queue: str | None) -> Iterator[list[JobView]]:
    """Every dead letter, some at a time, newest first."""
    from ...core.view import Filter

    before: int | None = None
    while True:
        page = engine.jobs(Filter(states=("dead",), queue=queue, limit=SOME, before=before))
        if page.jobs:
            yield page.jobs
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
