"""Schedules as people and programs change them: put, paused, resumed, run, backfilled, removed, looked at.

Whoever changes one has its row locked, and so has a fire: an old definition never fires after the change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from ..core import check, schedules
from ..core.machine import SECOND
from ..core.schedule_rows import StoredSchedule, StoredTick
from ..core.schedule_views import (
    LastRun,
    NextTick,
    ScheduleBody,
    ScheduleView,
    TickView,
    definition_of,
    local,
    schedule_view,
    tick_view,
)
from ..core.schedules import Decision, Definition
from ..core.times import moment
from ..core.view import rfc3339
from ..env import failpoint
from ..errors import NotFound, Refused
from ..store.store import Store
from ..system.time_zones import zone
from .again import repeated
from .sealing import writing
from .ticks import NewJob, Ticks, job_spec, last_success, tick_row
from .trees import Trees

MOST_BACKFILLED = 500
MOST_SHOWN = 10_000


class Schedules:
    """Changes schedules and shows them."""

    def __init__(self, store: Store, clock: Callable[[], int], rng: Random, ticks: Ticks) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._ticks = ticks

    # ── defined ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @repeated
    def put_schedule(self, name: str, body: ScheduleBody) -> ScheduleView:
        """It is as the body says, from now on. The same again changes nothing.

        The body's ``version`` is the one that it replaces, 0: none; Refused if that is not so (any more).
        """
        definition, version, by = definition_of(name, body), body.version, body.by
        schedules.check(definition, zone)
        spec = job_spec(definition.name, definition.job)
        if by is not None:
            check.check_text(by, "by", most=200)
        with writing(self._store):
            now = self._clock()
            self._store.ask("lock_schedule", name=definition.name)
            stored = self._find(definition.name)
            if version is not None and version != (stored.version if stored else 0):
                raise _changed(definition.name, stored)
            if stored is not None and stored.source == "code":
                raise Refused(
                    f"schedule {stored.name!r} is declared in code, by the app {stored.app!r}; change it there "
                    "(it can be paused here)"
                )
            write(self._store, stored, definition, now, queue=spec.queue_name, by=by)
            failpoint("schedule.putting")
        self._store.ring("pool")
        return self.schedule(definition.name)

    @repeated
    def remove_schedule(self, name: str, *, cancel_jobs: bool = False) -> int:
        """It is gone, with its ticks. Its jobs stay, but for those that are cancelled with it; how many that were."""
        with writing(self._store):
            now = self._clock()
            self._store.lock_queues()
            stored = self._locked(name)
            cancelled = 0
            if cancel_jobs:
                ids = [row[0] for row in self._store.ask("jobs_of_schedule", id=stored.id)]
                self._store.lock_trees(ids)
                trees = Trees(self._store, now, self._rng)
                for row in self._store.rows(ids).values():
                    if row.state not in ("completed", "dead", "cancelled"):
                        trees.cancel(row, f"cancelled with schedule {name}")
                        cancelled += 1
                        trees.settle()
            self._store.ask("remove_schedule", id=stored.id)
            self._store.event("schedule_removed", now=now, text=name)
            failpoint("schedule.removing")
        self._store.ring("pool")
        self._store.ring("end")
        return cancelled

    # ── paused ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @repeated
    def pause_schedule(
        self, name: str, *, reason: str | None = None, for_s: float | None = None, by: str | None = None
    ) -> ScheduleView:
        """Nothing more of it is fired until it is resumed, or until the time is over."""
        if for_s is not None:
            check.check_delay(for_s)
        for text, what in ((reason, "reason"), (by, "by")):
            if text is not None:
                check.check_text(text, what, most=500)
        with writing(self._store):
            now = self._clock()
            stored = self._locked(name)
            if stored.retired_at is not None:
                raise Refused(f"schedule {name!r} is retired: the app {stored.app!r} declares it no longer")
            resume_at = None if for_s is None else now + int(for_s * SECOND)
            fire_at = None if resume_at is None else schedules.first(stored.row(), resume_at, zone)[1]
            self._move(
                stored, now, fire_at=fire_at, paused_at=now, paused_by=by, pause_note=reason, resume_at=resume_at
            )
            self._store.event("schedule_paused", now=now, text=f"{name}: {reason or 'no reason given'}")
            failpoint("schedule.pausing")
        return self.schedule(name)

    @repeated
    def resume_schedule(self, name: str, *, catch_up: bool = False) -> ScheduleView:
        """It goes on. Ticks meanwhile were not missed; with ``catch_up`` they are, and its rules say what follows."""
        with writing(self._store):
            now = self._clock()
            stored = self._locked(name)
            if stored.retired_at is not None:
                raise Refused(f"schedule {name!r} is retired: the app {stored.app!r} declares it no longer")
            row = stored.row()
            if not stored.is_paused(now) or catch_up:
                next_at = stored.next_at
            else:
                decision, next_at = schedules.unpaused(row, now, zone)
                if decision is not None:
                    self._store.many("insert_tick", [tick_row(stored.id, decision, {}, None, {}, now)])
            self._move(stored, now, next_at=next_at, fire_at=schedules.fires_at(row, next_at))
            self._store.event("schedule_resumed", now=now, text=name)
            failpoint("schedule.resuming")
        self._store.ring("pool")
        return self.schedule(name)

    def _move(self, stored: StoredSchedule, now: int, **changed: Any) -> None:
        kept = {"next_at": stored.next_at, "fire_at": stored.fire_at, "retired_at": stored.retired_at}
        pause = dict.fromkeys(("paused_at", "paused_by", "pause_note", "resume_at"))
        self._store.ask(
            "move_schedule", **({"id": stored.id, "version": stored.version, "now": now} | kept | pause | changed)
        )

    # ── run ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @repeated
    def run_schedule(self, name: str, *, overlap: str | None = None) -> TickView:
        """It has a job now, besides its ticks. Refused where its overlap would skip it."""
        if overlap is not None and overlap not in schedules.OVERLAP:
            raise schedules.wrong_word(name, "overlap", overlap, schedules.OVERLAP)
        with writing(self._store):
            now = self._clock()
            self._store.lock_queues()
            stored = self._locked(name)
            found, known = self._ticks.runs_of([stored])
            runs = found.get(stored.id, [])
            tick = now - now % 1000 + 1  # ticks by themselves are whole milliseconds
            while self._store.ask("tick", id=stored.id, tick=tick):
                tick += 1
            decision = schedules.plan_run(stored.row(), tick, runs, overlap)
            if decision.decision != "fired":
                job = known.get((stored.id, decision.after[0]))
                raise Refused(
                    f"schedule {name!r}: {decision.note} (job {job}); overlap allow, queue or cancel would run it"
                )
            made = self._add(stored, [decision], last_success(stored, runs), known, now)
            job_id = made[stored.id, tick]
            self._store.many(
                "insert_tick",
                [tick_row(stored.id, decision, made, None, known, now) | {"decision": "manual", "note": None}],
            )
            self._store.ask("ran_schedule", id=stored.id, last_job=job_id, last_success=last_success(stored, runs))
            failpoint("schedule.running")
        self._store.ring("pool")
        return tick_view(self._tick(stored.id, tick))

    @repeated
    def backfill_schedule(
        self, name: str, start: str, end: str, *, limit: int = MOST_BACKFILLED, dry_run: bool = False
    ) -> list[TickView]:
        """Every tick from ``start`` to ``end`` has a job, but those that have one. Their overlap is not looked at."""
        begin, until = moment(start, "from"), moment(end, "to")
        with writing(self._store):
            now = self._clock()
            stored = self._locked(name)
            wanted = self._to_backfill(stored, begin, min(until, now), limit)
            fresh = [tick for tick, found in wanted if found is None or found.job_id is None]
            if dry_run:
                return [
                    TickView(tick=rfc3339(tick), at=None, decision="due")
                    if tick in fresh or found is None
                    else tick_view(found)
                    for tick, found in wanted
                ]
            decisions = [Decision(tick, "fired") for tick in fresh]
            made = self._add(stored, decisions, stored.last_success, {}, now)
            for tick, found in wanted:
                if (stored.id, tick) in made:
                    self._backfill_one(stored, tick, found, made[stored.id, tick], wanted[-1][0], now)
            text = f"{name}: {len(made)} jobs for ticks from {start} to {end}"
            self._store.event("schedule_backfilled", now=now, text=text)
            failpoint("schedule.filling")
        self._store.ring("pool")
        return [tick_view(self._tick(stored.id, tick)) for tick, _ in wanted]

    def _to_backfill(
        self, stored: StoredSchedule, start: int, end: int, limit: int
    ) -> list[tuple[int, StoredTick | None]]:
        """The ticks of a span, each with the row that it has. None that is still to be decided."""
        if stored.fire_at is not None and stored.next_at is not None:
            end = min(end, stored.next_at - 1)
        if stored.forgotten_to is not None and start <= stored.forgotten_to:
            raise Refused(
                f"schedule {stored.name!r}: ticks up to {rfc3339(stored.forgotten_to)} are not remembered one by one, "
                "so some might get a second job; begin later"
            )
        row, found = stored.row(), list[tuple[int, StoredTick | None]]()
        tick = schedules.next_tick(row, start - 1, zone)
        while tick is not None and tick <= end:
            if len(found) >= limit:
                raise Refused(
                    f"schedule {stored.name!r}: more than {limit} ticks in that span; take a shorter one, or a --limit"
                )
            rows = self._store.ask("tick", id=stored.id, tick=tick)
            found.append((tick, StoredTick(*rows[0]) if rows else None))
            tick = schedules.next_tick(row, tick, zone)
        return found

    def _backfill_one(
        self, stored: StoredSchedule, tick: int, found: StoredTick | None, job: int, last: int, now: int
    ) -> None:
        row = {"id": stored.id, "tick": tick, "at": now, "decision": "fired", "job_id": job, "open": 1}
        if found is None:
            self._store.many("insert_tick", [row | {"until": None, "note": "backfilled"}])
            return
        self._store.ask("decide_tick_anew", **row, note=f"backfilled; it was {found.decision}")
        if found.until is None:
            return
        rest = schedules.next_tick(stored.row(), last, zone)  # the row spoke of others, too
        if rest is not None and rest < found.until and not self._store.ask("tick", id=stored.id, tick=rest):
            left = Decision(rest, "missed", found.note, until=found.until)
            self._store.many("insert_tick", [tick_row(stored.id, left, {}, None, {}, now)])

    def _add(
        self,
        stored: StoredSchedule,
        decisions: Sequence[Decision],
        success: int | None,
        known: dict[tuple[int, int], int],
        now: int,
    ) -> dict[tuple[int, int], int]:
        jobs = [NewJob(stored, each, self._ticks.spec(stored, each.tick, success)) for each in decisions]
        return self._ticks.add_jobs(jobs, known, now)

    # ── looked at ───────────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self, name: str) -> ScheduleView:
        stored = self._known(name)
        return schedule_view(stored, self._last_runs([stored]).get(stored.id), self._clock(), zone, with_hints=True)

    def schedules(self) -> list[ScheduleView]:
        """All of them, by name."""
        found = [StoredSchedule(*row) for row in self._store.ask("schedules", after="", limit=1_000_000)]
        last, now = self._last_runs(found), self._clock()
        return [schedule_view(stored, last.get(stored.id), now, zone) for stored in found]

    def ticks(self, name: str, limit: int = 20) -> list[TickView]:
        """What was decided of its last ticks, newest first."""
        stored = self._known(name)
        rows = self._store.ask("ticks", id=stored.id, before=schedules.LATEST, limit=min(limit, MOST_SHOWN))
        return [tick_view(StoredTick(*row)) for row in rows]

    def next_ticks(self, name: str, count: int = 5) -> list[NextTick]:
        """Its next ticks, if nobody changes it."""
        stored, now = self._known(name), self._clock()
        row, after = stored.row(), max(now, stored.last_tick or 0)
        return next_ticks(row, after, count)

    def _last_runs(self, found: Sequence[StoredSchedule]) -> dict[int, LastRun]:
        ids = json.dumps([stored.id for stored in found if stored.last_job is not None])
        rows = self._store.ask("last_runs", ids=ids) if ids != "[]" else []
        return {id: LastRun(rfc3339(tick), job, state) for id, tick, job, state, _ in rows}

    def _tick(self, schedule: int, tick: int) -> StoredTick:
        return StoredTick(*self._store.ask("tick", id=schedule, tick=tick)[0])

    def _find(self, name: str) -> StoredSchedule | None:
        rows = self._store.ask("schedule", name=name)
        return StoredSchedule(*rows[0]) if rows else None

    def _known(self, name: str) -> StoredSchedule:
        stored = self._find(name)
        if stored is None:
            raise NotFound(f"no schedule {name!r}; `covey schedule list` shows what there is")
        return stored

    def _locked(self, name: str) -> StoredSchedule:
        self._store.ask("lock_schedule", name=name)
        return self._known(name)


def next_ticks(row: schedules.ScheduleRow | Definition, after: int, count: int) -> list[NextTick]:
    found, at = list[NextTick](), after
    tz = zone(row.when.tz)
    while len(found) < min(count, 1000) and (tick := schedules.next_tick(row, at, zone)) is not None:
        found.append(NextTick(rfc3339(tick) or "", local(tick, tz) or "", rfc3339(schedules.fires_at(row, tick)) or ""))
        at = tick
    return found


def write(
    store: Store,
    stored: StoredSchedule | None,
    definition: Definition,
    now: int,
    *,
    queue: str,
    app: str | None = None,
    by: str | None = None,
) -> bool:
    """The row says what the definition says, counted from now. Whether that was a change."""
    after = max(now, (stored.last_tick or 0) if stored else 0)  # a tick that was decided does not come again
    next_at, fire_at = schedules.first(definition, after, zone)
    said = {
        "digest": definition.digest,
        "spec": msgspec.json.encode(definition.when).decode(),
        "job": json.dumps(definition.job, separators=(",", ":"), ensure_ascii=False),
        "queue": queue,
        **{name: getattr(definition, name) for name in _SAID},
        "next_at": next_at,
        "fire_at": fire_at,
        "now": now,
    }
    if stored is None:
        store.ask("insert_schedule", name=definition.name, source="code" if app else "api", app=app, by=by, **said)
        store.event("schedule_added", now=now, text=definition.name)
        return True
    if stored.digest == definition.digest and stored.retired_at is None:
        return False
    if stored.is_paused(now):
        said["fire_at"] = None if stored.resume_at is None else schedules.first(definition, stored.resume_at, zone)[1]
    elif stored.next_at is not None and stored.fire_at is not None and stored.next_at <= now:
        over = Decision(stored.next_at, "missed", "the schedule was changed before it was decided", until=now + 1)
        store.many("insert_tick", [tick_row(stored.id, over, {}, None, {}, now)])
    store.ask("define_schedule", id=stored.id, version=stored.version, **said)
    store.event("schedule_edited", now=now, text=f"{definition.name}: version {stored.version + 1}")
    return True


_SAID = ("catch_up", "most", "window_s", "overlap", "jitter_s", "starts_at", "ends_at", "pause_after")


def _changed(name: str, stored: StoredSchedule | None) -> Refused:
    if stored is None:
        return Refused(f"schedule {name!r} is not there any more")
    return Refused(f"there is a schedule {name!r} already, version {stored.version}; `covey schedule edit` changes it")
