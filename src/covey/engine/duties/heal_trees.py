"""A parent that waits for nobody has moved on, with an event: it should never have come to this.

The same for what waits for a clock that was ahead.
"""

from __future__ import annotations

from ...core.clocks import FRESH, NEVER, SLACK, has_stood
from ...store.store import Store
from ..requests import KEPT
from ..trees import Trees
from .duty import BATCH, LONGEST_PERIOD, Due, Duty

AHEAD = "it was set by a clock that was ahead"


def heal(store: Store, due: Due) -> bool:
    now = due.now
    trees = Trees(store, now, due.rng)
    mended = 0
    if _is_news(store, due.noticed_at, now):
        due.cursor = now
    elif due.noticed_at != NEVER:
        mended = _mend(store, due.noticed_at, trees)
    stuck = [row[0] for row in store.ask("stuck_parents", limit=BATCH)]
    store.lock_trees(stuck)
    for id in stuck:
        store.ask("recount", id=id)
        store.event("healed", now=now, job_id=id, text="it waited although its children had all ended")
    trees.look_at(stuck)
    trees.settle()
    return mended == BATCH


def _is_news(store: Store, noticed_at: int, now: int) -> bool:
    """Whether something lies ahead that was not there when that was noticed: a client has a clock as well.

    What should have been over for a while, and was left alone by those who looked, has come since.
    """
    ahead = now + SLACK
    if noticed_at == NEVER:
        return bool(store.ask("ahead", ahead=ahead, late=ahead + LONGEST_PERIOD))
    since = {"noticed_at": noticed_at, "before": now - FRESH, "kept": KEPT}
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


DUTY = Duty("heal", heal, notes=True)
