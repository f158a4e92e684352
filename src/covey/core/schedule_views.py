"""Schedules as they are said and shown."""

from __future__ import annotations

import json
from datetime import datetime, tzinfo
from typing import Any

from msgspec import Struct

from ..errors import InvalidInput
from .machine import SECOND
from .schedule_rows import StoredSchedule, StoredTick
from .schedules import MOST, WINDOW_S, Definition, When, Zones, hints, words
from .times import moment, seconds
from .view import rfc3339

# ── said ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class ScheduleBody(Struct, kw_only=True, rename={"starts": "from"}, omit_defaults=True, forbid_unknown_fields=True):
    """A schedule as a JSON object. One of `cron`, `every` and `at` says when; `job` is what `enqueue` takes."""

    job: dict[str, Any]
    cron: list[str] | str | None = None
    tz: str = "UTC"
    every: float | str | None = None
    at: list[str] | str | None = None
    catch_up: str = "one"
    most: int | None = None
    window: float | str | None = None
    overlap: str = "skip"
    jitter: float | str | None = None
    starts: str | None = None
    until: str | None = None
    pause_after_failures: int | None = None
    version: int | None = None  # the one that is replaced, 0: there is none yet; else whichever there is
    by: str | None = None  # who says so; a server knows that better


def definition_of(name: str, body: ScheduleBody) -> Definition:
    """What the object says; InvalidInput for what cannot be read. Whether it can be is for `schedules.check`."""
    catch_up, most = body.catch_up, body.most
    if catch_up.startswith("all:"):
        if not catch_up[4:].isdecimal() or not catch_up.isascii() or most is not None:
            raise InvalidInput(f"schedule {name!r}: catch_up {catch_up!r}; write one, skip, all or all:50")
        catch_up, most = "all", int(catch_up[4:][:9])
    return Definition(
        name=name,
        when=When(
            cron=tuple([body.cron] if isinstance(body.cron, str) else body.cron or ()),
            tz=body.tz,
            every=_seconds(body.every, "every"),
            at=tuple(_instant(at, "at") for at in ([body.at] if isinstance(body.at, str) else body.at or ())),
        ),
        job=body.job,
        catch_up=catch_up,  # type: ignore[arg-type]  # checked with the rest
        most=MOST if most is None else most,
        window_s=_seconds(body.window, "window") or WINDOW_S,
        overlap=body.overlap,  # type: ignore[arg-type]
        jitter_s=_seconds(body.jitter, "jitter") or 0.0,
        starts_at=None if body.starts is None else _instant(body.starts, "from"),
        ends_at=None if body.until is None else _instant(body.until, "until"),
        pause_after=body.pause_after_failures,
    )


def _instant(text: str, what: str) -> int:
    """Whole milliseconds: what is shown."""
    at = moment(text, what)
    return at - at % 1000


def _seconds(value: float | str | None, what: str) -> float | None:
    return seconds(value, what) if isinstance(value, str) else None if value is None else float(value)


# ── shown ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class LastRun(Struct, frozen=True):
    """What became of the last tick that was decided with a job."""

    tick: str | None
    job: int
    state: str | None  # null: the job is gone


class Paused(Struct, frozen=True):
    since: str | None
    by: str | None
    reason: str | None
    until: str | None


class ScheduleView(Struct, kw_only=True, rename={"starts": "from"}):
    """A schedule as JSON. Absent is null; times are RFC 3339 in UTC, but for `next_local`."""

    name: str
    when: str  # in words
    cron: list[str] | None
    tz: str
    every: float | None
    at: list[str] | None
    catch_up: str
    most: int
    window: float
    overlap: str
    jitter: float
    starts: str | None
    until: str | None
    pause_after_failures: int | None
    job: dict[str, Any]
    queue: str
    source: str
    app: str | None
    version: int
    state: str  # active, paused, done (nothing more comes), retired (its app declares it no longer)
    next: str | None
    next_local: str | None
    fires: str | None  # with its jitter
    last: LastRun | None
    last_success: str | None
    missed: int
    skipped: int  # in a row
    overdue: float  # seconds; 0 = in time
    paused: Paused | None
    hints: list[str]
    created_at: str | None
    created_by: str | None
    updated_at: str | None


class NextTick(Struct, frozen=True):
    """A tick to come."""

    tick: str
    local: str
    fires: str  # with its jitter


class TickView(Struct, kw_only=True):
    """What was decided of a tick: one job, or why none."""

    tick: str | None
    at: str | None
    decision: str
    until: str | None = None  # missed: and all others before this instant
    job: int | None = None
    state: str | None = None
    note: str | None = None


def body_of(view: ScheduleView) -> ScheduleBody:
    """What says the same, and replaces just that."""
    return ScheduleBody(
        job=view.job,
        cron=view.cron,
        tz=view.tz,
        every=view.every,
        at=view.at,
        catch_up=view.catch_up,
        most=view.most,
        window=view.window,
        overlap=view.overlap,
        jitter=view.jitter,
        starts=view.starts,
        until=view.until,
        pause_after_failures=view.pause_after_failures,
        version=view.version,
    )


def tick_view(stored: StoredTick) -> TickView:
    return TickView(
        tick=rfc3339(stored.tick),
        at=rfc3339(stored.at),
        decision=stored.decision,
        until=rfc3339(stored.until),
        job=stored.job_id,
        state=stored.state,
        note=stored.note,
    )


def local(at: int | None, zone: tzinfo) -> str | None:
    """An instant as the clocks of its zone show it."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / SECOND, zone).isoformat(timespec="seconds")


def schedule_view(
    stored: StoredSchedule, last: LastRun | None, now: int, zones: Zones, *, with_hints: bool = False
) -> ScheduleView:
    when = stored.row().when
    is_paused = stored.is_paused(now)
    paused = Paused(rfc3339(stored.paused_at), stored.paused_by, stored.pause_note, rfc3339(stored.resume_at))
    return ScheduleView(
        name=stored.name,
        when=words(when),
        cron=list(when.cron) or None,
        tz=when.tz,
        every=when.every,
        at=[rfc3339(at) or "" for at in when.at] or None,
        catch_up=stored.catch_up,
        most=stored.most,
        window=stored.window_s,
        overlap=stored.overlap,
        jitter=stored.jitter_s,
        starts=rfc3339(stored.starts_at),
        until=rfc3339(stored.ends_at),
        pause_after_failures=stored.pause_after,
        job=json.loads(stored.job),
        queue=stored.queue,
        source=stored.source,
        app=stored.app,
        version=stored.version,
        state=stored.state(now),
        next=rfc3339(stored.next_at) if stored.fire_at is not None else None,
        next_local=local(stored.next_at, zones(when.tz)) if stored.fire_at is not None else None,
        fires=rfc3339(stored.fire_at),
        last=last,
        last_success=rfc3339(stored.last_success),
        missed=stored.missed,
        skipped=stored.skipped,
        overdue=max(0.0, (now - stored.fire_at) / SECOND) if stored.fire_at is not None else 0.0,
        paused=paused if is_paused else None,
        hints=hints(when, zones, now) if with_hints else [],
        created_at=rfc3339(stored.created_at),
        created_by=stored.created_by,
        updated_at=rfc3339(stored.updated_at),
    )
