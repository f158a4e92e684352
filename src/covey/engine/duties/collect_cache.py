"""The cache is no larger than it may be: records that were used least are gone. Blobs go after them, by their owner."""

from __future__ import annotations

from collections.abc import Mapping

from ... import settings as config
from ...core.machine import SECOND
from ...store.asking import json_text
from ...store.store import Store
from .duty import BATCH, LONGEST_PERIOD, Due, Duty

SPARED = (
    2 * 24 * 3600 * SECOND
)  # what was used within is kept, however large: less than one build needs would never fit
PERIOD = LONGEST_PERIOD


def collect(store: Store, due: Due) -> bool:
    stored = {name: text for name, text in store.ask("config") if name in config.SETTINGS}
    return drop(store, stored, due.now - SPARED) == BATCH


def drop(store: Store, stored: Mapping[str, str], before: int, *, most: int | None = None) -> int:
    """Of the records not used since ``before``, the least used are gone until the rest fits; at most one batch."""
    most = config.effective(stored, {})["cache_max_bytes"] if most is None else most
    (count, size, _, _), *_ = store.ask("cache_counts")
    if not count or size <= most:
        return 0
    gone = []
    for key, bytes_of in store.ask("least_used", before=before, limit=BATCH):
        if size <= most:
            break
        gone.append(key)
        size -= bytes_of
    if gone:
        store.ask("drop_records", keys=json_text(gone))
    return len(gone)


DUTY = Duty("cache", collect, PERIOD)
