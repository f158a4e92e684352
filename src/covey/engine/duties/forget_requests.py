"""Answers to requests that nobody will send again are gone."""

from __future__ import annotations

from ...core.clocks import SLACK
from ...store.store import Store
from ..requests import KEPT
from .duty import BATCH, Due, Duty


def forget(store: Store, due: Due) -> bool:
    forgotten = len(store.ask("prune_requests", before=due.now - KEPT, limit=BATCH))
    if due.noticed_at < due.now - KEPT:
        store.ask("prune_requests_ahead", ahead=due.now + SLACK, limit=BATCH)
    return forgotten == BATCH


DUTY = Duty("requests", forget)
