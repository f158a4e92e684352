"""covey worker list: pools and what their workers do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..open_queue import open_queue
from ..options import Db, Json
from ..pasting import pasteable
from ..printing import as_json, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.view import PoolView, WorkerView

COLUMNS = ("WORKER", "STATE", "QUEUE", "KIND", "PID", "JOB", "SINCE", "DONE", "FAILED", "MEMORY")
# Where the window is narrow, these give way, the first first; a worker's name begins with its queue or its kind.
DROPPED = ("QUEUE", "MEMORY", "KIND", "FAILED", "DONE", "PID")


def list_workers(json: Json = False, db: Db = None) -> None:
    """List pools and their workers: who is there, what each of them runs, and what could not start."""
    engine = open_queue(db)
    pools = engine.pool_views()
    if json:
        as_json(pools)
    elif pools:
        _show(pools)
    else:
        note(pasteable("no workers; `covey worker start` runs some", db))


def _show(pools: list[PoolView]) -> None:
    from ...engine.health import is_alive
    from .. import render

    for number, pool in enumerate(pools):
        if number:
            print()
        alive = is_alive(pool)
        render.facts(_facts(pool, alive))
        if alive and pool.workers:
            workers, earlier = _worth_a_row(pool.workers)
            _table([_row(worker) for worker in workers])
            render.facts(_errors(workers, earlier))


def _facts(pool: PoolView, alive: bool) -> Iterator[tuple[str, object]]:
    from ...engine.health import is_frozen
    from .. import render
    from ..times import span

    state = "gone" if not alive else "frozen" if is_frozen(pool) else pool.state
    queues = ", ".join(pool.queues) if pool.queues else "all queues"
    types = ", ".join(f"{queue} {count}" for queue, count in pool.types.items()) if pool.types else None
    yield "pool", f"{pool.id} {pool.name}"
    yield "state", render.state(state)
    yield "serves", types or f"{queues}, {pool.count} at a time" if pool.count else "through its containers"
    yield "app", pool.app
    place = f"pid {pool.pid} on {pool.host}" if pool.pid else "one job at a time, over HTTP"
    yield "where", f"{place}, last seen {span(pool.beat_age_s)} ago"
    yield "log", pool.log
    if not alive:
        yield "holds", f"{pool.held} jobs; `covey worker reap` or the next pool hands them back"
    for what, why in pool.given_up.items():
        yield "gave up", f"{what}: {why}"


def _row(worker: WorkerView) -> dict[str, object]:
    from .. import render
    from ..times import age

    kind = f"{worker.kind}/{worker.mode}" if worker.mode else worker.kind
    values = (
        worker.name,
        render.state(worker.state),
        worker.queue,
        kind,
        worker.pid,
        worker.job_id,
        age(worker.busy_since, time.time()),
        worker.done,
        worker.failed,
        size(worker.memory),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _table(rows: list[dict[str, object]]) -> None:
    """The rows are on stdout, with as many columns as fit; QUEUE only where workers have one."""
    from .. import render

    columns = [name for name in COLUMNS if name != "QUEUE" or any(row[name] for row in rows)]
    widths = {name: max(len(name), *(render.cell(row[name]).cell_len for row in rows)) for name in columns}
    room = render.console().width
    for name in DROPPED:
        if sum(widths[each] + render.GAP for each in columns) - render.GAP <= room:
            break
        if name in columns:
            columns.remove(name)
    render.table(columns, [[row[name] for name in columns] for row in rows], wide="WORKER")


def _worth_a_row(workers: list[WorkerView]) -> tuple[list[WorkerView], dict[str, int]]:
    """In the order of their numbers; of those that fell of the same cause, the last, and how many fell before it."""
    shown: dict[tuple[object, ...], WorkerView] = {}
    earlier: dict[str, int] = {}
    for worker in sorted(workers, key=_number):
        key = ("dead", worker.queue, worker.mode, worker.error) if worker.state == "dead" else (worker.name,)
        before = shown.pop(key, None)
        earlier[worker.name] = earlier.pop(before.name) + 1 if before else 0
        shown[key] = worker
    return sorted(shown.values(), key=_number), earlier


def _number(worker: WorkerView) -> tuple[str, int]:
    name, _, number = worker.name.rpartition("-")
    return (name, int(number)) if number.isdecimal() else (worker.name, 0)


def _errors(workers: list[WorkerView], earlier: dict[str, int]) -> Iterator[tuple[str, object]]:
    """Each error once, with the workers that have it. Below the table, because there it need not be cut."""
    named: dict[str, list[WorkerView]] = {}
    for worker in workers:
        if worker.error:
            named.setdefault(worker.error, []).append(worker)
    for error, fallen in named.items():
        before = sum(earlier[worker.name] for worker in fallen)
        more = f" and {before} before" if before else ""
        yield "error", f"{', '.join(worker.name for worker in fallen)}{more}: {error}"


def size(memory: int | None) -> str:
    """Bytes as people say them."""
    if memory is None:
        return ""
    for unit, bits in (("G", 30), ("M", 20)):
        if memory >= 1 << bits:
            amount = memory / (1 << bits)
            return f"{amount:.1f}{unit}" if amount < 10 else f"{amount:.0f}{unit}"
    return f"{memory >> 10}K"
