"""Housekeeping: bounded, inside turns, no process of its own. One pool per period wins the row."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .. import config
from ..core.machine import SECOND, Signal, decide
from ..env import failpoint
from ..store.store import Store

BATCH = 1000
PERIOD = 30 * SECOND


def reap(store: Store, pool: int, beat: int, clock: Callable[[], int], rng: Random) -> int:
    """Everything that a lost pool held is pending again or released, at no cost. 0 if it lives after all."""
    reaped = 0
    while True:
        with store.transaction():
            now = clock()
            last = store.value("pool_beat", pool=pool)
            if last is not None and last != beat:
                return reaped
            ids = [row[0] for row in store.ask("held_page", pool=pool, limit=BATCH)]
            for row in store.rows(ids).values():
                change = decide(row, Signal("pool_lost"), now, rng)
                store.change(row, change, now)
                store.event("interrupted", now=now, job_id=row.id, pool=pool, text="its pool was lost")
            failpoint("reap.before_commit")
            if last is not None:
                # First of all the row goes: from now on the pool's own turns are answered "lost".
                store.ask("remove_pool", pool=pool)
                store.event("pool_lost", now=now, pool=pool, text=f"{len(ids)} jobs handed back")
        reaped += len(ids)
        if len(ids) < BATCH:
            break
    if reaped:
        store.ring("pool")
        store.ring("end")
    return reaped


def prune(store: Store, now: int, *, force: bool = False) -> int:
    """Jobs past their retention are gone: one bounded window of the table a period, round and round."""
    if not force and not store.ask("take_duty", name="prune", next_at=now + PERIOD, now=now):
        return 0
    settings = config.effective({key: value for key, value in store.ask("config") if key in config.SETTINGS}, {})
    if force:
        store.ask("take_duty", name="prune", next_at=now + PERIOD, now=now)
    cursor = store.value("duty_cursor", name="prune") or 0
    upto = store.value("sweep_window", cursor=cursor, limit=BATCH * 10)
    pruned = 0
    if upto is not None:
        ids = store.ask(
            "prunable",
            cursor=cursor,
            upto=upto,
            completed_before=_before(settings["keep_completed_seconds"], now),
            cancelled_before=_before(settings["keep_cancelled_seconds"], now),
            dead_before=_before(settings["keep_dead_seconds"], now),
        )
        ids = ids[:BATCH]
        if len(ids) == BATCH:
            upto = ids[-1][0]
        for (id,) in ids:
            store.ask("remove_job", id=id)
        pruned = len(ids)
    # A full batch: more may be waiting right behind it, so the next turn goes on.
    store.ask("set_duty_cursor", name="prune", cursor=upto or 0, next_at=now if pruned == BATCH else now + PERIOD)
    store.ask("prune_events", before=_before(settings["keep_events_seconds"], now), limit=BATCH)
    return pruned


def resume(store: Store, now: int) -> None:
    """A pause whose time is over has ended, with an event, so that a forgotten one is noticed."""
    for (name,) in store.ask("overdue_pauses", now=now):
        store.ask("resume_queue", name=name)
        store.event("resumed", now=now, text=f"{name}: the pause was over")


def _before(keep_s: float | None, now: int) -> int:
    return -1 if keep_s is None else now - int(keep_s * SECOND)
