"""covey edit: a job that has not started, changed."""

from __future__ import annotations

from typing import Annotated

import typer

from ...errors import InvalidInput
from ..open_queue import open_queue
from ..options import Attempts, Db, Json, Ref
from ..printing import answer, as_json


def edit(
    job: Ref,
    priority: Annotated[int | None, typer.Option("--priority", "-p", help="Higher runs first.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="Move it to this queue.")] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="RFC 3339 with a zone, or now.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="TIME", help="Not before 90s, 2h, 1d from now.")
    ] = None,
    max_attempts: Attempts = None,
    json: Json = False,
    db: Db = None,
) -> None:
    """Change a job that waits to start."""
    from msgspec import UNSET

    from ...core.view import Edit

    if run_at is not None and delay is not None:
        raise InvalidInput("--run-at and --delay both say when the job starts; give one of them")
    start = _start(run_at, delay)
    if priority is None and queue is None and max_attempts is None and not start:
        raise InvalidInput("nothing to change; pass --priority, --queue, --run-at, --delay or --max-attempts")
    if max_attempts is not None:
        from ...core.objects import attempts

        attempts(max_attempts, "--max-attempts")
    engine = open_queue(db)
    view = engine.edit(
        job,
        Edit(
            priority=UNSET if priority is None else priority,
            queue=UNSET if queue is None else queue,
            run_at=start[0] if start else UNSET,
            max_attempts=UNSET if max_attempts is None else max_attempts,
        ),
    )
    if json:
        as_json(view)
    else:
        answer(f"{view.id} {view.state}" + (f", starts at {view.run_at}" if view.state == "scheduled" else ""))


def _start(run_at: str | None, delay: str | None) -> list[int | None]:
    """[when it may start, None for now], or nothing if that is to stay."""
    from ...core.times import moment, seconds

    if run_at is not None:
        return [None if run_at.strip().lower() == "now" else moment(run_at, "--run-at")]
    if delay is not None:
        from ...core.check import check_delay
        from ...env import now

        delay_s = seconds(delay, "--delay")
        check_delay(delay_s)
        return [now() + int(delay_s * 1_000_000)]
    return []
