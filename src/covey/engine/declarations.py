"""Schedules that apps declare: judged whenever a pool with the app comes or goes.

Of the living pools the youngest that declares a name says what it is; what none of them declares any more is retired.
Nobody looks again in between, so two versions of an app do not take turns. Without a living pool nothing changes: what
was declared last goes on, and is caught up by the next one.
"""

from __future__ import annotations

import json

import msgspec

from ..core import schedules
from ..core.schedule_rows import StoredSchedule
from ..core.schedule_views import ScheduleBody, definition_of
from ..core.turn import PoolInfo
from ..errors import CoveyError
from ..store.store import Store
from ..system.time_zones import zone
from .schedules import write
from .ticks import job_spec


def declare(store: Store, pool: int, info: PoolInfo, now: int) -> None:
    """The pool has come with these schedules of its app."""
    if info.project is None or info.schedules is None:
        return
    queues = None if info.within is None else json.dumps(info.within)
    store.ask("declare", pool=pool, app=info.project, definitions=json.dumps(info.schedules), queues=queues)
    judge(store, info.project, now)


def app_of(store: Store, pool: int) -> str | None:
    app: str | None = store.value("declares", pool=pool)
    return app


def judge(store: Store, app: str | None, now: int) -> None:
    """The app's schedules are what its living pools declare."""
    if app is None:
        return
    living = store.ask("declarations", app=app)  # the youngest first
    if not living:
        return
    seen: set[str] = set()
    for _, text, queues in living:
        allowed = None if queues is None else set(json.loads(queues))
        for said in json.loads(text):
            name = str(said.get("name"))
            if name not in seen:
                seen.add(name)
                _apply(store, app, name, said, allowed, now)
    for row in store.ask("schedules_of_app", app=app):
        stored = StoredSchedule(*row)
        if stored.name not in seen and stored.retired_at is None:
            _retire(store, stored, now)


def _apply(store: Store, app: str, name: str, said: dict[str, object], allowed: set[str] | None, now: int) -> None:
    """It is as declared; if it may not be, the event says why, and the others are none the worse."""
    try:
        body = msgspec.convert({word: value for word, value in said.items() if word != "name"}, ScheduleBody)
        definition = definition_of(name, body)
        schedules.check(definition, zone)
        queue = job_spec(name, definition.job).queue_name
        store.ask("lock_schedule", name=name)
        found = store.ask("schedule", name=name)
        stored = StoredSchedule(*found[0]) if found else None
        if why := _refusal(stored, app, queue, allowed):
            raise CoveyError(why)
        write(store, stored, definition, now, queue=queue, app=app)
    except (CoveyError, msgspec.ValidationError) as error:
        store.event("schedule_refused", now=now, text=f"{name}, declared by {app}: {error}")


def _refusal(stored: StoredSchedule | None, app: str, queue: str, allowed: set[str] | None) -> str | None:
    if allowed is not None and queue not in allowed:
        return f"its pool's token is for {', '.join(sorted(allowed))} only, not for {queue}"
    if stored is not None and stored.app != app:
        owner = f"declared by the app {stored.app}" if stored.app else "one that somebody has added"
        return f"there is a schedule of that name already, {owner}; choose another name"
    if stored is not None and allowed is not None and stored.queue not in allowed:
        return "there is a schedule of that name already, for another queue"
    return None


def _retire(store: Store, stored: StoredSchedule, now: int) -> None:
    """It does not fire; declared again, it comes back with its history."""
    pause = {name: getattr(stored, name) for name in ("paused_at", "paused_by", "pause_note", "resume_at")}
    store.ask(
        "move_schedule",
        id=stored.id,
        version=stored.version,
        now=now,
        next_at=stored.next_at,
        fire_at=None,
        retired_at=now,
        **pause,
    )
    store.event("schedule_retired", now=now, text=f"{stored.name}: the app {stored.app} declares it no longer")
