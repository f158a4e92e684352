"""covey show: everything about one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..open_queue import open_queue
from ..options import Db, Json, Ref
from ..printing import as_json, safe

if TYPE_CHECKING:
    from ...core.view import Attempt, JobView


MOST_LINES, LONGEST = 20, 300  # of what a task has said of itself: names, and characters of each


def show(job: Ref, json: Json = False, db: Db = None) -> None:
    """Show one job with its history."""
    engine = open_queue(db)
    view = engine.job(job)
    history = engine.history(view.id)
    if json:
        as_json(with_history(view, history))
    else:
        show_job(view, history)


def with_history(view: JobView, history: list[Attempt]) -> dict[str, Any]:
    """The job's JSON with one field more."""
    from msgspec import to_builtins

    return {**to_builtins(view), "history": to_builtins(history)}


def show_job(view: JobView, history: list[Attempt]) -> None:
    """The job and its attempts are on stdout."""
    from .. import render

    render.facts(_facts(view))
    if history:
        print()
        render.table(
            ["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "EXIT", "ERROR"],
            [
                (
                    run.number,
                    run.outcome,
                    run.started_at,
                    took(run.started_at, run.finished_at),
                    run.exit_code,
                    run.error,
                )
                for run in history
            ],
            wide="ERROR",
        )
        _show_detail(history[-1])


def _show_detail(run: Attempt) -> None:
    """The last traceback, which is mostly what one came for."""
    if run.detail:
        print()
        print(safe(run.detail.rstrip("\n")))


def _facts(view: JobView) -> list[tuple[str, object]]:
    import json

    from .. import render

    state = render.state(view.state)
    if view.state == "cancelled" and view.pool is not None:
        state.append(" (its processes are still being stopped)")
    return [
        ("job", view.id),
        ("key", view.key),
        ("state", state),
        ("error", view.error),
        ("exit code", view.exit_code),
        ("command", view.command),
        ("task", view.task if view.command is None else None),
        ("args", None if view.command is not None or view.args is None else json.dumps(view.args, ensure_ascii=False)),
        ("result", None if view.result is None else json.dumps(view.result, ensure_ascii=False)),
        *_info(view.info),
        ("children", render.family(view)),
        ("parent", view.parent_id),
        ("root", view.root_id if view.parent_id is not None and view.root_id != view.parent_id else None),
        ("queue", view.queue),
        ("priority", view.priority or None),
        ("attempts", f"{view.attempts} of {view.max_attempts}"),
        ("interruptions", view.interruptions or None),
        ("run at", view.run_at if view.state in ("scheduled", "failed") else None),
        ("created", view.created_at),
        ("started", view.started_at),
        ("finished", view.finished_at),
        ("took", took(view.started_at, view.finished_at)),
        ("timeout", None if view.timeout is None else f"{view.timeout:g} s"),
        ("cwd", view.cwd),
        ("worker", _who(view)),
        ("batch", view.batch),
        ("labels", ", ".join(f"{name}={value}" for name, value in (view.labels or {}).items())),
    ]


def _info(info: Any) -> list[tuple[str, object]]:
    """What the task has said of itself, a name a line; very much of it only with --json."""
    import json

    if info is None:
        return []
    named = info.items() if isinstance(info, dict) else [("", info)]
    lines = [f"{f'{name} = ' if name else ''}{json.dumps(value, ensure_ascii=False)}" for name, value in named]
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in lines]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"… and {len(lines) - MOST_LINES} more; `covey show --json` has all"]
    return [("" if number else "info", line) for number, line in enumerate(lines)]


def _who(view: JobView) -> str | None:
    """Who runs it or ran it last: the worker, its pool, the host, as far as that is known."""
    if view.pool_name is None:
        return view.worker
    pool = f"{'pool' if view.worker is None else f'{view.worker} of pool'} {view.pool_name}"
    return pool if view.host in (None, "http") else f"{pool} on {view.host}"


def took(started_at: str | None, finished_at: str | None) -> str:
    """The time between two instants, or nothing if one is missing."""
    if started_at is None or finished_at is None:
        return ""
    from datetime import datetime

    from ..times import span

    return span(max(0.0, (datetime.fromisoformat(finished_at) - datetime.fromisoformat(started_at)).total_seconds()))
