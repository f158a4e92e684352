"""covey schedule edit: what is said anew of a schedule."""

from __future__ import annotations

from typing import Any

import typer
from msgspec.structs import replace

from ...errors import InvalidInput
from ..job_options import takes_job_options
from ..open_queue import open_queue
from ..options import Db, Json, Words
from ..parser import WordsCommand, argv_of
from ..schedule_input import (
    Args,
    At,
    CatchUp,
    Cron,
    Every,
    From,
    Jitter,
    Kind,
    Name,
    Overlap,
    PauseAfter,
    TaskName,
    Tz,
    Until,
    Window,
    body_fields,
    job_of,
    spoken_options,
    who,
)
from .schedule import told

WHEN = ("cron", "every", "at")
WHAT = ("command", "argv", "task", "args", "kind")


@takes_job_options("enqueue")
def edit(
    ctx: typer.Context,
    name: Name,
    words: Words = None,
    *,
    cron: Cron = None,
    tz: Tz = None,
    every: Every = None,
    at: At = None,
    catch_up: CatchUp = None,
    window: Window = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    starts: From = None,
    until: Until = None,
    pause_after_failures: PauseAfter = None,
    task: TaskName = None,
    args: Args = None,
    kind: Kind = None,
    json: Json = False,
    db: Db = None,
    **options: Any,
) -> None:
    """Change a schedule; what is not said stays. It is counted from now: what it was never fires again.

    covey schedule edit nightly --cron '45 2 * * *'
    """
    from ...core.schedule_views import body_of

    given = options
    job = job_of(list(words or ()), argv_of(ctx), given, task=task, args=args, kind=kind)
    fields = body_fields(
        cron=cron, tz=tz, every=every, at=at, catch_up=catch_up, window=window, overlap=overlap, jitter=jitter,
        starts=starts, until=until, pause_after_failures=pause_after_failures,
    )  # fmt: skip
    if job is None and not given and not fields:
        raise InvalidInput("nothing to change; say what shall be otherwise, as in --cron '45 2 * * *'")
    engine = open_queue(db)
    body = body_of(engine.schedule(name))
    if any(word in fields for word in WHEN):  # one of them says when
        body = replace(body, cron=None, every=None, at=None, tz=body.tz if "cron" in fields else "UTC")
    if "catch_up" in fields:
        fields["most"] = None
    kept = {field: value for field, value in body.job.items() if job is None or field not in WHAT}
    spoken = spoken_options(given) if job is None else job
    told(engine.put_schedule(name, replace(body, by=who(), **fields, job=kept | spoken)), json)


edit.command_class = WordsCommand  # type: ignore[attr-defined]
