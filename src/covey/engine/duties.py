"""Housekeeping: bounded, inside turns, no process of its own. One pool per period wins the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from .. import settings as config
from ..core.clocks import FRESH, NEVER, SLACK, has_stood
from ..core.machine import SECOND, Signal, decide
from ..env import failpoint
from ..store.store import Store
from . import requests
from .again import repeated
from .sealing import writing
from .trees import Trees

BATCH = 1000
PERIOD = 30 * SECOND
LOST = "its pool was lost"
AHEAD = "it was set by a clock that was ahead"
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


def prune(store: Store, now: int) -> int:
    """Jobs past their retention are gone: one bounded window of the table a period, round and round."""
    duty = _take(store, "prune", now)
    if duty is None:
        return 0
    settings = config.effective({key: value for key, value in store.ask("config") if key in config.SETTINGS}, {})
    before = {state: _before(settings[f"keep_{state}_seconds"], now) for state in ("completed", "cancelled", "dead")}
    cursor, pruned = sweep(store, duty.cursor, before, now, duty.noticed_at)
    # A full batch: more may be waiting right behind it, so the next turn goes on.
    store.ask("set_duty_cursor", name="prune", cursor=cursor or 0, next_at=now if pruned == BATCH else now + PERIOD)
    store.ask("prune_events", before=(long_ago := _before(settings["keep_events_seconds"], now)), limit=BATCH)
    if duty.noticed_at < long_ago:
        store.ask("prune_events_ahead", ahead=now + SLACK, limit=BATCH)
    store.dialect.tidy()
    return pruned


def forget_requests(store: Store, now: int) -> int:
    """Requests that nobody will send again are gone, a bounded number a period. How many."""
    duty = _take(store, "requests", now)
    if duty is None:
        return 0
    forgotten = len(store.ask("prune_requests", before=now - requests.KEPT, limit=BATCH))
    if duty.noticed_at < now - requests.KEPT:
        store.ask("prune_requests_ahead", ahead=now + SLACK, limit=BATCH)
    if forgotten == BATCH:  # more may be waiting right behind them, so the next turn goes on
        store.ask("set_duty_cursor", name="requests", cursor=0, next_at=now)
    return forgotten


def sweep(
    store: Store, cursor: int, ended_before: Mapping[str, int], now: int, noticed_at: int
) -> tuple[int | None, int]:
    """Of the next trees after ``cursor``, those whose root ended before its state's instant are gone, leaves first.

    (Where to go on, or None at the end of the table; how many jobs are gone.) Bounded in what it reads and what it
    deletes: a tree larger than that goes in several sweeps, its root last. What ended ahead of this clock has ended,
    for all that can be told, when that was noticed.
    """
    upto = store.value("sweep_window", cursor=cursor, limit=10 * BATCH)
    if upto is None:
        return None, 0
    limits = {f"{state}_before": ended_before.get(state, -1) for state in ("completed", "cancelled", "dead")}
    trees = Trees(store, now, Random(0))
    gone = 0
    limits |= {"ahead": now + SLACK, "noticed_at": noticed_at}
    for root, has_kin in store.ask("prunable", cursor=cursor, upto=upto, **limits)[:BATCH]:
        if has_kin:
            gone += _prune_tree(store, root, BATCH - gone, trees)
        else:
            store.ask("remove_job", id=root)
            gone += 1
        if gone == BATCH:
            cursor = root - 1  # it may not be gone whole
            break
    trees.settle()
    return (cursor if gone == BATCH else upto), gone


def _prune_tree(store: Store, job: int, most: int, trees: Trees) -> int:
    """The job and all below it are gone, or as much of that as ``most`` allows. How many."""
    gone = 0
    while gone < most:
        children = store.ask("last_children", parent=job, limit=most - gone)
        if not children:
            trees.removed(job)
            store.ask("remove_job", id=job)
            return gone + 1
        for id, pool, has_children in children:
            if pool is not None:
                return gone  # still stopping
            if has_children:
                below = _prune_tree(store, id, most - gone, trees)
                if not below:
                    return gone
                gone += below
            else:
                store.ask("remove_job", id=id)
                gone += 1
            if gone >= most:
                return gone
    return gone


def heal(store: Store, now: int, rng: Random) -> int:
    """A parent that waits for nobody has moved on, with an event: it should never have come to this. How many.

    The same for what waits for a clock that was ahead.
    """
    duty = _take(store, "heal", now, notes=True)
    if duty is None:
        return 0
    trees = Trees(store, now, rng)
    mended = 0
    if _is_news(store, duty.noticed_at, now):
        duty = Duty(now, now)
        store.ask("set_duty_cursor", name="heal", cursor=now, next_at=now + PERIOD)
    elif duty.noticed_at != NEVER:
        mended = _mend(store, duty.noticed_at, trees)
    stuck = [row[0] for row in store.ask("stuck_parents", limit=BATCH)]
    store.lock_trees(stuck)
    for id in stuck:
        store.ask("recount", id=id)
        store.event("healed", now=now, job_id=id, text="it waited although its children had all ended")
    trees.look_at(stuck)
    trees.settle()
    if mended == BATCH:  # more may be waiting right behind them, so the next turn goes on
        store.ask("set_duty_cursor", name="heal", cursor=duty.cursor, next_at=now)
    return max(len(stuck), mended)


def _is_news(store: Store, noticed_at: int, now: int) -> bool:
    """Whether something lies ahead that was not there when that was noticed: a client has a clock as well.

    What should have been over for a while, and was left alone by those who looked, has come since.
    """
    ahead = now + SLACK
    if noticed_at == NEVER:
        return bool(store.ask("ahead", ahead=ahead, late=ahead + PERIOD))
    since = {"noticed_at": noticed_at, "before": now - FRESH, "kept": requests.KEPT}
    return bool(store.ask("missed_ahead", ahead=ahead, **since))


def _mend(store: Store, noticed_at: int, trees: Trees) -> int:
    """What a clock that was ahead has put off lasts no longer than it should have, since that was noticed. How many."""
    now, ahead = trees.now, trees.now + SLACK
    for (name,) in store.ask("pauses_ahead", ahead=ahead, noticed_at=noticed_at, now=now):
        store.ask("resume_queue", name=name)
        store.event("resumed", now=now, text=f"{name}: {AHEAD}")
    trees.expire(BATCH, noticed_at)
    if not has_stood(noticed_at, now):
        return 0
    mended = [row[0] for row in store.ask("mend_runs", now=now, ahead=ahead, limit=BATCH)]
    for id in mended:
        store.event("healed", now=now, job_id=id, text=f"when it runs next: {AHEAD}")
    return len(mended)


def resume(store: Store, now: int) -> None:
    """A pause whose time is over has ended, with an event, so that a forgotten one is noticed."""
    for (name,) in store.ask("overdue_pauses", now=now):
        store.ask("resume_queue", name=name)
        store.event("resumed", now=now, text=f"{name}: the pause was over")


class Duty(NamedTuple):
    """A duty that is ours for a period."""

    cursor: int
    noticed_at: int  # when somebody saw last that a clock was ahead; or NEVER


def _take(store: Store, name: str, now: int, *, notes: bool = False) -> Duty | None:
    """The duty, if it is due and nobody else has it. ``notes``: that it was put off by a clock which is ahead."""
    late = now + PERIOD + SLACK
    found = store.ask("take_duty", name=name, next_at=now + PERIOD, now=now, late=late, notes=notes)
    if not found:
        return None
    cursor, noticed_at = found[0]
    return Duty(cursor, (cursor if notes else noticed_at) or NEVER)


def _before(keep_s: float | None, now: int) -> int:
    return -1 if keep_s is None else now - int(keep_s * SECOND)
