"""Of each schedule the newest hundred ticks are remembered, and those whose job is still there."""

from __future__ import annotations

from ...core.machine import SECOND
from ...store.store import Store
from .duty import BATCH, Due, Duty

PAGE = 200  # schedules that are looked at in a period


def forget(store: Store, due: Due) -> bool:
    ids = [row[0] for row in store.ask("schedule_ids", after=due.cursor, limit=PAGE)]
    if not ids:
        due.cursor = 0
        return False
    ticks = store.ask("forgettable", after=due.cursor, upto=ids[-1], limit=BATCH)
    latest: dict[int, int] = {}
    for id, tick in ticks:
        store.ask("forget_tick", id=id, tick=tick)
        latest[id] = tick
    for id, tick in latest.items():
        store.ask("forgotten_to", id=id, tick=tick)
    if len(ticks) < BATCH:
        due.cursor = ids[-1]
    return len(ticks) == BATCH or len(ids) == PAGE


DUTY = Duty("ticks", forget, period=600 * SECOND)
