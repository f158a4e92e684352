"""Jobs past their retention are gone: one bounded window of the table a period, round and round."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from ... import settings as config
from ...core.clocks import SLACK
from ...core.machine import SECOND
from ...store.store import Store
from ..trees import Trees
from .duty import BATCH, Due, Duty


def prune(store: Store, due: Due) -> bool:
    now = due.now
    settings = config.effective({key: value for key, value in store.ask("config") if key in config.SETTINGS}, {})
    before = {state: _before(settings[f"keep_{state}_seconds"], now) for state in ("completed", "cancelled", "dead")}
    cursor, pruned = sweep(store, due.cursor, before, now, due.noticed_at)
    due.cursor = cursor or 0
    store.ask("prune_events", before=(long_ago := _before(settings["keep_events_seconds"], now)), limit=BATCH)
    if due.noticed_at < long_ago:
        store.ask("prune_events_ahead", ahead=now + SLACK, limit=BATCH)
    store.dialect.upkeep.tidy()
    return pruned == BATCH


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


def _before(keep_s: float | None, now: int) -> int:
    return -1 if keep_s is None else now - int(keep_s * SECOND)


DUTY = Duty("prune", prune)
