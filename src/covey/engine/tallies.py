"""How many jobs there are, without counting them: an index for those that are not completed, a sum for the rest."""

from __future__ import annotations

from typing import Any

from ..core.label import parts
from ..core.view import Counts, RunView, Sample
from ..store.store import Store

MINUTE = 60_000_000
OVER = ("completed", "dead", "cancelled")


def run_of(row: tuple[Any, ...]) -> RunView:
    id, queue, task, state, label, created_at, run_at, started_at, finished_at = row
    worker, pool, host = parts(label)
    ready = max(created_at, run_at or 0)
    return RunView(id, queue, task, state, worker, pool, host, min(ready, started_at), started_at, finished_at)


def counts(store: Store) -> Counts:
    """Of each queue how many jobs are in each state, as of this moment. Inside a snapshot or a transaction."""
    found: Counts = {}
    for queue, state, count in store.ask("counts"):
        found.setdefault(queue, {})[state] = int(count)
    rows: dict[str, int] = {}
    for queue, count, *_ in (*store.ask("counted"), *store.ask("uncounted")):
        rows[queue] = rows.get(queue, 0) + int(count)
    for queue, total in rows.items():
        if (completed := total - sum(found.get(queue, {}).values())) > 0:
            found.setdefault(queue, {})["completed"] = completed
    return found


def ended(store: Store) -> Counts:
    """Of each queue how many ended jobs of each state have been removed, ever."""
    return {queue: dict(zip(OVER, map(int, gone), strict=True)) for queue, _, *gone in store.ask("counted")}


def samples(store: Store, since: int) -> list[Sample]:
    """How it stood, minute by minute, from the minute ``since`` on."""
    return [Sample(*row) for row in store.ask("samples", since=since)]
