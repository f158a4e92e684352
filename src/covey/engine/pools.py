"""Pools that are lost: what they held is pending again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..core.machine import Signal, decide
from ..env import failpoint
from ..store.store import Store
from .again import repeated
from .duties.duty import BATCH
from .sealing import writing
from .trees import Trees

LOST = "its pool was lost"
REAP_WAIT_S = 0.2  # a pool that waits for a lock takes no turns meanwhile
# What a pool that was cut off in the middle has locked: free before its lease is over, so that nobody waits for it.
STILL_S = 1.5


def reap(store: Store, pool: int, beat: int, clock: Callable[[], int], rng: Random, reason: str | None = None) -> int:
    """Everything that a lost pool held is pending again or released, at no cost. 0 if it lives after all.

    Busy if its last transaction is still open: of a host that was cut off in the middle of a turn, until the server
    ends that session.
    """
    reaped = 0
    while (page := _reap_page(store, pool, beat, clock, rng, reason)) is not None:
        reaped += page
        if page < BATCH:
            break
    if reaped:
        store.ring("pool")
        store.ring("end")
    return reaped


@repeated
def _reap_page(
    store: Store, pool: int, beat: int, clock: Callable[[], int], rng: Random, reason: str | None
) -> int | None:
    """How many jobs were handed back; None if the pool lives."""
    tail = f": {reason}" if reason else ""
    with writing(store, wait_s=REAP_WAIT_S, still_s=STILL_S):
        now = clock()
        last = store.value("pool_beat", pool=pool)
        if last is not None and last != beat:
            return None
        store.lock_queues()
        ids = [row[0] for row in store.ask("held_page", pool=pool, limit=BATCH)]
        store.lock_trees(ids)
        trees = Trees(store, now, rng)
        for row in store.rows(ids).values():
            if row.pool != pool:
                continue  # another one was faster
            change = decide(row, Signal("pool_lost", error=reason), now, rng)
            store.change(row, change, now)
            if row.state == "cancelled":
                trees.released(row)
            elif change.ended:
                trees.ended(row, change.state)
            store.event("interrupted", now=now, job_id=row.id, pool=pool, text=LOST + tail)
        trees.settle()
        failpoint("reap.before_commit")
        if last is not None:
            # First of all the row goes: from now on the pool's own turns are answered "lost".
            store.ask("workers_died", pool=pool, now=now, text=LOST + tail)
            store.ask("remove_pool", pool=pool)
            store.event("pool_lost", now=now, pool=pool, text=f"{len(ids)} jobs handed back{tail}")
    return len(ids)
