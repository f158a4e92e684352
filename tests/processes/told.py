"""What a pool tells about its workers: in the books, in its row, in its log file, on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from covey.core.view import Event, PoolView, WorkerView
from covey.testing import until
from tests.kit.running import RunningPool, Yard


def events(yard: Yard, *kinds: str) -> list[Event]:
    """What has happened to pools and workers so far, oldest first; only these kinds, if some are named."""
    found = reversed(yard.engine.pool_events(limit=100_000))
    return [event for event in found if not kinds or event.kind in kinds]


def event(yard: Yard, kind: str, within_s: float = 15) -> Event:
    """The first event of the kind, once it is in the books."""
    return until(lambda: events(yard, kind), within_s, f"an event {kind!r}; there are {_kinds(yard)}")[0]


def most_starting(found: Iterable[Event]) -> int:
    """How many workers were on their way at the same time, at most."""
    coming: set[str | None] = set()
    most = 0
    for each in found:
        if each.kind == "starting":
            coming.add(each.worker)
            most = max(most, len(coming))
        elif each.kind in ("ready", "failed"):
            coming.discard(each.worker)
    return most


def shows(pool: RunningPool, idle: int, within_s: float = 20) -> PoolView:
    """Its row, once it shows that many workers that stand ready."""

    def look() -> PoolView | None:
        view = pool.view()
        return view if view and sum(worker.state == "idle" for worker in view.workers) >= idle else None

    return until(look, within_s, f"{idle} workers stand ready")


def workers(pool: RunningPool, state: str) -> dict[str, WorkerView]:
    """Workers in that state as its row shows them, by name."""
    view = pool.view()
    return {worker.name: worker for worker in view.workers if worker.state == state} if view else {}


def result_line(pool: RunningPool) -> str:
    """How the start-up went, in its own words."""
    (line,) = (line for line in pool.said().splitlines() if " workers in " in line)
    return line


def logs(yard: Yard) -> list[Path]:
    """The log files of this queue's pools, one each."""
    return sorted(Path(f"{yard.side}/logs").glob("*.log"))


def _kinds(yard: Yard) -> set[str]:
    return {each.kind for each in events(yard)}
