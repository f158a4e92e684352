"""Schedules as an app declares them: `app.schedule(task, cron=…)`. A pool with the app brings them along."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from .core.schedule_views import ScheduleBody
from .errors import InvalidInput

if TYPE_CHECKING:
    from .job import Call
    from .task import Variant


class Schedule:
    """A declared schedule."""

    def __init__(self, name: str, body: ScheduleBody) -> None:
        self.name, self.body = name, body

    def next(self, count: int = 5) -> list[datetime]:
        """Its next ticks, as clocks in its zone show them. No queue is asked."""
        from .core.schedule_views import definition_of
        from .engine.schedules import next_ticks
        from .env import now

        return [
            datetime.fromisoformat(tick.local) for tick in next_ticks(definition_of(self.name, self.body), now(), count)
        ]

    def __repr__(self) -> str:
        return f"<Schedule {self.name}>"


def declared(
    what: Variant[..., Any] | Call[Any],
    *,
    name: str | None,
    cron: str | Sequence[str] | None,
    every: float | str | timedelta | None,
    at: datetime | Sequence[datetime] | None,
    **options: Any,
) -> Schedule:
    """The schedule; InvalidInput for what cannot be one."""
    from .core import schedules
    from .core.schedule_views import definition_of
    from .job import Call
    from .system.time_zones import zone
    from .task import Variant

    source, args = (what.source, what.args) if isinstance(what, Call) else (what, None)
    if not isinstance(source, Variant):
        raise InvalidInput(f"app.schedule takes a task or a call of one, not {what!r}")
    instants = [at] if isinstance(at, datetime) else at
    fields: dict[str, Any] = {word: value for word, value in options.items() if value is not None}
    for word in ("window", "jitter"):
        if word in fields:
            fields[word] = _seconds(fields[word])
    for word in ("starts", "until"):
        if word in fields:
            fields[word] = _instant(fields[word], word)
    body = ScheduleBody(
        job=_job(source, args),
        cron=[cron] if isinstance(cron, str) else None if cron is None else list(cron),
        every=_seconds(every),
        at=None if instants is None else [_instant(each, "at") for each in instants],
        **fields,
    )
    definition = definition_of(name or source.task.name, body)
    schedules.check(definition, zone)
    return Schedule(definition.name, body)


def _job(source: Variant[..., Any], args: str | None) -> dict[str, Any]:
    """The call as an object, as `enqueue` takes it."""
    import json

    from .core.options import OPTIONS

    spec = source.spec(args)
    job: dict[str, Any] = {"task": spec.task, "kind": spec.kind}
    for option in OPTIONS:
        if option.json and (value := getattr(spec, option.field, None)) is not None:
            job[option.name] = value
    given, named = json.loads(spec.args) if spec.args else ([], {})
    if given and named:
        raise InvalidInput(f"{spec.task}: pass the arguments of a schedule all by position or all by name")
    if given or named:
        job["args"] = given or named
    return job


def _seconds(value: float | str | timedelta | None) -> float | str | None:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _instant(value: datetime, name: str) -> str:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidInput(f"{name} {value!r}: pass a datetime with a time zone, for example tzinfo=UTC")
    return value.isoformat()
