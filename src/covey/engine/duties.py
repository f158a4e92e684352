"""Housekeeping: bounded, inside turns, no process of its own. One pool per period wins the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
                store.ask("workers_died", pool=pool, now=now, text="its pool was lost")
                store.ask("remove_pool", pool=pool)
                store.event("pool_lost", now=now, pool=pool, text=f"{len(ids)} jobs handed back")
        reaped += len(ids)
        if len(ids) < BATCH:
            break
    if reaped:
        store.ring("pool")
        store.ring("end")
    return reaped


def prune(store: Store, now: int) -> int:
    """Jobs past their retention are gone: one bounded window of the table a period, round and round."""
    if not store.ask("take_duty", name="prune", next_at=now + PERIOD, now=now):
        return 0
    settings = config.effective({key: value for key, value in store.ask("config") if key in config.SETTINGS}, {})
    before = {state: _before(settings[f"keep_{state}_seconds"], now) for state in ("completed", "cancelled", "dead")}
    cursor, pruned = sweep(store, store.value("duty_cursor", name="prune") or 0, before)
    # A full batch: more may be waiting right behind it, so the next turn goes on.
    store.ask("set_duty_cursor", name="prune", cursor=cursor or 0, next_at=now if pruned == BATCH else now + PERIOD)
    store.ask("prune_events", before=_before(settings["keep_events_seconds"], now), limit=BATCH)
    return pruned


def sweep(store: Store, cursor: int, ended_before: Mapping[str, int]) -> tuple[int | None, int]:
    """Of the next jobs after ``cursor``, those that ended before their state's instant are gone.

    (Where to go on, or None at the end of the table; how many are gone.) Bounded in what it reads and what it deletes.
    """
    upto = store.value("sweep_window", cursor=cursor, limit=10 * BATCH)
    if upto is None:
        return None, 0
    limits = {f"{state}_before": ended_before.get(state, -1) for state in ("completed", "cancelled", "dead")}
    ids = store.ask("prunable", cursor=cursor, upto=upto, **limits)[:BATCH]
    for (id,) in ids:
        store.ask("remove_job", id=id)
    return (ids[-1][0] if len(ids) == BATCH else upto), len(ids)


def resume(store: Store, now: int) -> None:
    """A pause whose time is over has ended, with an event, so that a forgotten one is noticed."""
    for (name,) in store.ask("overdue_pauses", now=now):
        store.ask("resume_queue", name=name)
        store.event("resumed", now=now, text=f"{name}: the pause was over")


def _before(keep_s: float | None, now: int) -> int:
    return -1 if keep_s is None else now - int(keep_s * SECOND)
