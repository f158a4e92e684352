"""covey worker list: pools and what their workers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .opening import open_queue
from .options import Db, Json
from .output import as_json, note

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.view import PoolView


def list_workers(json: Json = False, db: Db = None) -> None:
    """List pools and their workers."""
    engine = open_queue(db)
    pools = engine.pool_views()
    if json:
        as_json(pools)
    elif pools:
        _show(pools)
    else:
        note("no workers; `covey worker start` runs some")


def _show(pools: list[PoolView]) -> None:
    from ..engine.views import is_alive
    from . import render
    from .times import span

    for number, pool in enumerate(pools):
        if number:
            print()
        state = pool.state if is_alive(pool) else "gone"
        queues = ", ".join(pool.queues) if pool.queues else "all queues"
        render.facts(
            [
                ("pool", f"{pool.id} {pool.name}"),
                ("state", render.state(state)),
                ("serves", f"{queues}, {pool.count} at a time" + (f", app {pool.app}" if pool.app else "")),
                ("where", f"pid {pool.pid} on {pool.host}, last seen {span(pool.beat_age_s)} ago"),
            ]
        )
        if pool.workers:
            columns = ["WORKER", "STATE", "KIND", "PID", "JOB", "SINCE", "DONE", "FAILED"]
            if any(worker.error for worker in pool.workers):
                columns.append("ERROR")
            rows = [row[: len(columns)] for row in _rows(pool)]
            render.table(columns, rows, wide="ERROR" if "ERROR" in columns else "WORKER")


def _rows(pool: PoolView) -> Iterable[tuple[object, ...]]:
    import time
    from datetime import datetime

    from . import render
    from .times import span

    for worker in pool.workers:
        since = ""
        if worker.busy_since is not None:
            since = span(max(0.0, time.time() - datetime.fromisoformat(worker.busy_since).timestamp()))
        yield (
            worker.name,
            render.state(worker.state),
            worker.mode or worker.kind,
            worker.pid,
            worker.job_id,
            since,
            worker.done,
            worker.failed,
            worker.error,
        )
