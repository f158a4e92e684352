"""Schedules, as far as a token may see their jobs' queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...core import bodies
from ...core.ports import Backend
from ...core.schedule_views import ScheduleBody
from ...errors import Forbidden, NotFound
from .call import ApiCall, Verb, check_queues


def _put(engine: Backend, call: ApiCall) -> Any:
    body: ScheduleBody = call.body
    guest, name = call.guest, call.names["name"]
    if guest.queues is not None:
        check_queues(guest, [str(body.job.get("queue") or "default")])
        try:
            known = engine.schedule(name)
        except NotFound:
            known = None
        if known is not None and known.queue not in guest.queues:
            raise Forbidden(f"there is a schedule {name!r} already, for another queue; choose another name")
    return engine.put_schedule(name, replace(body, by=guest.name) if guest.name else body)


def _about(act: Callable[[Backend, str, ApiCall], Any]) -> Verb:
    """About a schedule that the asker may see; else it is as if there were none."""

    def verb(engine: Backend, call: ApiCall) -> Any:
        name, guest = call.names["name"], call.guest
        if guest.queues is not None and engine.schedule(name).queue not in guest.queues:
            raise NotFound(f"no schedule {name!r}; `covey schedule list` shows what there is")
        return act(engine, name, call)

    return verb


def _pause(engine: Backend, name: str, call: ApiCall) -> Any:
    body: bodies.PauseSchedule = call.body
    return engine.pause_schedule(name, reason=body.reason, for_s=body.for_s, by=call.guest.name or body.by)


def _backfill(engine: Backend, name: str, call: ApiCall) -> Any:
    body: bodies.Backfill = call.body
    return engine.backfill_schedule(name, body.start, body.end, limit=body.limit, dry_run=body.dry_run)


def _remove(engine: Backend, name: str, call: ApiCall) -> Any:
    return bodies.CancelledCount(engine.remove_schedule(name, cancel_jobs=call.query.cancel_jobs))


VERBS: dict[str, Verb] = {
    "schedules": lambda engine, call: [view for view in engine.schedules() if call.guest.may_see(view.queue)],
    "put_schedule": _put,
    "schedule": _about(lambda engine, name, _: engine.schedule(name)),
    "ticks": _about(lambda engine, name, call: engine.ticks(name, call.query.limit)),
    "next_ticks": _about(lambda engine, name, call: engine.next_ticks(name, call.query.n)),
    "pause_schedule": _about(_pause),
    "resume_schedule": _about(lambda engine, name, call: engine.resume_schedule(name, catch_up=call.body.catch_up)),
    "run_schedule": _about(lambda engine, name, call: engine.run_schedule(name, overlap=call.body.overlap)),
    "backfill_schedule": _about(_backfill),
    "remove_schedule": _about(_remove),
}
