"""covey cache: what was computed before, why a job was not, and whether it would be the same again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidInput, JobFailed, Refused
from ..open_queue import open_queue
from ..options import Db, Json, Ref
from ..printing import answer, as_json, note

if TYPE_CHECKING:
    from ...core.ports import Client
    from ...core.view import JobView

MaxSize = Annotated[
    str | None, typer.Option("--max-size", metavar="SIZE", help="How much may stay: 500M, 2G, 0; else as configured.")
]
Wait = Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="Give up waiting after 90s, 5m …")]


def status(json: Json = False, db: Db = None) -> None:
    """Say what the cache keeps, and what it has been good for."""
    found = open_queue(db).cache_status()
    if json:
        as_json(found)
        return
    from ...core.times import span
    from .. import render

    asked = found.hits + found.misses
    render.facts(
        [
            ("records", found.records),
            ("size", f"{found.bytes:,} of {found.max_bytes:,} bytes"),
            ("hits", f"{found.hits} of {asked}" + (f" ({100 * found.hits / asked:.0f} %)" if asked else "")),
            ("time saved", span(found.saved_s)),
            ("oldest", found.oldest_at),
        ]
    )


def explain(job: Ref, json: Json = False, db: Db = None) -> None:
    """Say why a job ran or did not: which parts of its key differ from the nearest record."""
    found = open_queue(db).explain_cache(job)
    if json:
        as_json(found)
        return
    answer(f"job {found.id}: {found.reason}")
    if found.differences:
        answer(f"from job {found.nearest}, the nearest of its task, it differs in:")
        for line in found.differences:
            answer(f"  {line}")
    elif found.key is not None and found.outcome != "hit":
        answer("there is no other record of its task to compare it with")


def prune(max_size: MaxSize = None, json: Json = False, db: Db = None) -> None:
    """Keep less: what was used least goes first."""
    from ..worker_options import size_of

    most = None if max_size is None else 0 if max_size == "0" else size_of("--max-size", max_size)
    done = open_queue(db).prune_cache(most)
    if json:
        as_json(done)
    else:
        answer(f"{done.records} records removed, {done.bytes:,} bytes")


def check(job: Ref, timeout: Wait = None, json: Json = False, db: Db = None) -> None:
    """Run a cached job once more, beside the cache, and compare: what differs is not deterministic."""
    from ...core.times import seconds

    limit_s = None if timeout is None else seconds(timeout, "--timeout")
    engine = open_queue(db)
    before = engine.job(job)
    if before.cache_key is None or before.state != "completed":
        raise InvalidInput(
            f"job {before.id} has no result that the cache could keep; name one that is cached and completed"
        )
    again = _run_again(engine, before, limit_s)
    lines = _compared(engine, before, again)
    if json:
        as_json({"id": before.id, "again": again.id, "same": not lines, "differences": lines})
    else:
        answer(
            "\n".join(
                [
                    f"job {again.id} did the same as job {before.id}" + (", but:" if lines else ": nothing differs"),
                    *(f"  {line}" for line in lines),
                ]
            )
        )
    if lines:
        raise Refused(f"what job {before.id} does is not deterministic; cache it only if any of its results will do")


def _run_again(engine: Client, view: JobView, limit_s: float | None) -> JobView:
    """The same call, run without the cache, once it has ended."""
    from ...core.codec import encode
    from ...core.model import Spec

    text = None if view.args is None else encode(view.args, what="arguments")
    spec = Spec(task=view.task, kind=view.kind, args=text, queue=view.queue, cwd=view.cwd, timeout_s=view.timeout)  # type: ignore[arg-type]
    (made,) = engine.enqueue([spec])
    note(f"running it again as job {made.id}")
    if not engine.wait_for([made.id], limit_s):
        raise Refused(f"job {made.id} has not ended within {limit_s:g} s; `covey why {made.id}` says what it waits for")
    again = engine.job(made.id)
    if again.state != "completed":
        raise JobFailed(f"job {again.id} is {again.state}: {again.error}", again.id)
    return again


def _compared(engine: Client, one: JobView, other: JobView) -> list[str]:
    lines = [
        f"{name} was {getattr(one, name)!r:.200}, is {getattr(other, name)!r:.200}"
        for name in ("result", "info", "exit_code")
        if getattr(one, name) != getattr(other, name)
    ]
    outputs = [
        (run[-1].stdout, run[-1].stderr) if run else ("", "")
        for run in (engine.history(one.id), engine.history(other.id))
    ]
    for name, before, after in zip(("standard output", "standard error"), *outputs, strict=True):
        if before != after:
            lines.append(f"{name} was {before!r:.200}, is {after!r:.200}")
    return lines
