"""covey wait: returns when jobs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...core.model import ENDED
from ...errors import NotFound
from ..codes import TIMED_OUT, code_of
from ..open_queue import open_queue
from ..options import Db, Json, Refs
from ..printing import as_json, note, one_line

if TYPE_CHECKING:
    from ...core.ports import Client
    from ...core.view import JobView

LOOK_S = 0.5

Limit = Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="Give up after 90s, 5m …; exit code 124.")]
Any = Annotated[bool, typer.Option("--any", help="One of them is enough.")]


def wait(jobs: Refs, timeout: Limit = None, any: Any = False, json: Json = False, db: Db = None) -> int:
    """Wait until jobs have ended. Exits with the job's code; of several, with the first that is not 0.

    0 completed, the command's own code if it died of that, 1 cancelled or dead otherwise, 124 out of time,
    125 an error of Covey's own.
    """
    from ...core.times import seconds

    limit_s = None if timeout is None else seconds(timeout, "--timeout")
    engine = open_queue(db)
    ids = [engine.job(ref).id for ref in jobs]
    in_time = _wait(engine, list(dict.fromkeys(ids)), limit_s, any)
    views = {id: _view(engine, id) for id in ids}
    ended = [view for view in views.values() if view is None or view.state in ENDED]
    if json:
        as_json([view for view in views.values() if view is not None])
    if not in_time:
        note(f"covey: {len(ended)} of {len(views)} have ended, time is over")
        return TIMED_OUT
    for id, view in views.items():
        if view is None:
            note(f"covey: job {id} was removed meanwhile")
        elif view.state in ("dead", "cancelled"):
            note(f"covey: job {id} is {view.state}" + (f": {one_line(view.error)}" if view.error else ""))
    return next((code for code in map(code_of, ended) if code), 0)


def _view(engine: Client, id: int) -> JobView | None:
    try:
        return engine.job(id)
    except NotFound:
        return None


def _wait(engine: Client, ids: list[int], limit_s: float | None, any_of: bool) -> bool:
    """True when they have ended in time; with a bar on stderr on a terminal: of the jobs, or of the one's children."""
    import sys

    if any_of or not sys.stderr.isatty():
        return engine.wait_for(ids, limit_s, any_of=any_of)
    import time

    deadline = None if limit_s is None else time.monotonic() + limit_s
    if len(ids) == 1:
        return _watch_children(engine, ids[0], deadline)
    from ..render import bar

    open_ids = ids
    with bar() as shown:
        task = shown.add_task("waiting", total=len(ids))
        while open_ids:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not engine.wait_for(open_ids, left, any_of=True):
                return False
            open_ids = _open(engine, open_ids)
            shown.update(task, completed=len(ids) - len(open_ids))
    return True


def _watch_children(engine: Client, id: int, deadline: float | None) -> bool:
    """True when the job has ended in time; meanwhile a bar shows how many of its children have."""
    import time

    from ..render import bar, family

    with bar() as shown:
        task = shown.add_task("waiting", total=None, visible=False)
        while True:
            left = LOOK_S if deadline is None else min(LOOK_S, max(0.0, deadline - time.monotonic()))
            if engine.wait_for([id], left):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if (view := _view(engine, id)) is not None and view.children.total:
                counts = view.children
                done = counts.total - counts.unfinished
                shown.update(task, description=family(view), total=counts.total, completed=done, visible=True)


def _open(engine: Client, ids: list[int]) -> list[int]:
    from ...core.view import Filter

    still: list[int] = []
    for start in range(0, len(ids), 1000):
        page = engine.jobs(Filter(ids=tuple(ids[start : start + 1000]), limit=1000))
        still += [view.id for view in page.jobs if view.state not in ENDED]
    return still
