"""Followers of a flight that is none any more are freed, however that came about: none of them waits for ever."""

from __future__ import annotations

from ...store.store import Store
from .. import flights
from ..trees import Trees
from .duty import BATCH, Due, Duty


def heal(store: Store, due: Due) -> bool:
    keys = [row[0] for row in store.ask("stale_flights", limit=BATCH)]
    if keys:
        trees = Trees(store, due.now, due.rng)
        for key in keys:
            store.ask("end_flight", key=key)
            flights.free(trees, key)
        trees.settle()
        store.ring("pool")
        store.ring("end")
    return len(keys) == BATCH


DUTY = Duty("flights", heal)
