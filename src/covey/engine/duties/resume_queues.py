"""A pause whose time is over has ended, with an event, so that a forgotten one is noticed."""

from __future__ import annotations

from ...store.store import Store
from .duty import Due, Duty


def resume(store: Store, due: Due) -> bool:
    for (name,) in store.ask("overdue_pauses", now=due.now):
        store.ask("resume_queue", name=name)
        store.event("resumed", now=due.now, text=f"{name}: the pause was over")
    return False


DUTY = Duty("resume", resume)
