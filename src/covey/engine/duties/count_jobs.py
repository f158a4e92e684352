"""Rows are counted piece by piece as they come, and once a minute it is written down how it stands (decision 41)."""

from __future__ import annotations

from ...store.store import Store
from ..tallies import MINUTE, counts, ended
from .duty import PERIOD, Due, Duty

WINDOW = 20_000  # rows: some ten milliseconds
MARGIN = 1000  # the last ids, where writers run beside each other: who has a lower one may commit later
KEPT = 8 * 24 * 60  # minutes


def count(store: Store, due: Due) -> bool:
    upto = store.value("count_window", cursor=due.cursor, limit=WINDOW, margin=MARGIN)
    is_more = False
    if upto is not None and upto > due.cursor:
        store.ask("count_more", cursor=due.cursor, upto=upto)
        is_more = upto - due.cursor >= WINDOW
        due.cursor = upto
        # At once, or those rows would be counted twice by who asks next.
        store.ask("set_duty_cursor", name=DUTY.name, cursor=upto, next_at=due.now + PERIOD)
    _sample(store, due.now // MINUTE)
    return is_more


def _sample(store: Store, minute: int) -> None:
    if (store.value("sampled") or 0) >= minute:
        return
    found, over = counts(store), ended(store)
    for queue in found.keys() | over.keys():
        now, before = found.get(queue, {}), over.get(queue, {})
        totals = {state: now.get(state, 0) + before.get(state, 0) for state in ("completed", "dead", "cancelled")}
        waiting = sum(now.get(state, 0) for state in ("pending", "scheduled", "failed", "blocked"))
        store.ask("add_sample", minute=minute, queue=queue, waiting=waiting, running=now.get("processing", 0), **totals)
    store.ask("prune_samples", before=minute - KEPT)


DUTY = Duty("count", count)
