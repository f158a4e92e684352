"""Cancelled jobs whose processes are not gone: who sees to that, and what to do where nobody does."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.model import JobRow
from ..core.view import PoolView
from ..env import hostname
from ..errors import Refused, StillStopping
from ..store.store import Store
from .health import is_alive


def explained(error: StillStopping, store: Store, rows: Sequence[JobRow], pools: Sequence[PoolView]) -> Refused:
    """The same, unless the pool that has to end them is gone: then who hands the job back, or what to do about it."""
    known = {pool.id: pool for pool in pools}
    for held in _held(store, rows):
        pool = known.get(held.pool or 0)
        if pool is not None and is_alive(pool):
            continue
        whose = f"pool {held.pool}" if pool is None else f"pool {pool.id} ({pool.name} on {pool.host})"
        text = f"job {held.id} was cancelled while it ran, and {whose}, which has to end its processes, is gone"
        if any(is_alive(other) for other in pools):
            return StillStopping(f"{text}; another pool sees to that soon")
        reaps = pool is not None and pool.host == hostname()
        advice = "`covey worker reap` does it" if reaps else "a pool does it after a lease: `covey worker start`"
        return Refused(f"{text}; {advice}, then try again")
    return error


def _held(store: Store, rows: Sequence[JobRow]) -> list[JobRow]:
    """Of each job's tree one that a pool still has."""
    ids = [found[0][0] for row in rows if (found := store.ask("held_in_tree", root=row.root_id))]
    return [row for id in ids if (row := store.row(id)) is not None]
