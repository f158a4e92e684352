"""The fire: what is due is decided inside a turn. Tick, job and next instant are one transaction.

Whoever takes a turn fires for all, whatever queues it works on; nobody leads. Where writers run beside each other, each
takes the schedules that nobody else has just taken. The primary key (schedule, tick) has the last word.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import schedules
from ..core.machine import SECOND
from ..core.model import EDGES, Spec
from ..core.objects import check_known, spec_of
from ..core.schedule_rows import StoredSchedule
from ..core.schedule_views import local
from ..core.schedules import Decision, Plan, Run
from ..core.specs import check_spec
from ..core.view import rfc3339
from ..env import failpoint
from ..errors import CoveyError, Duplicate, InvalidInput, Undone
from ..store.job_rows import root
from ..store.store import Store
from ..system.time_zones import zone
from . import arrivals
from .spawns import AddQueues, Queues, starts_at
from .trees import Trees

PAGE = 300  # schedules that are looked at in one turn …
PAGE_S = 0.005  # … and for how long: claims wait meanwhile
TRIES = 3  # a schedule that cannot be decided so often in a row is paused
AGAIN = 60 * SECOND
BUSY = SECOND // 20  # what is due and somebody else's just now is looked at again after so long


class NewJob(Struct, frozen=True):
    """A job that a tick shall have."""

    stored: StoredSchedule
    decision: Decision
    spec: Spec


class Planned(Struct, frozen=True):
    """What is decided of one schedule; ``refused``: ticks whose job may not be, and why."""

    stored: StoredSchedule
    plan: Plan
    success: int | None
    refused: dict[int, str]


class Page(Struct, frozen=True):
    """What one turn decides."""

    jobs: list[NewJob] = []
    planned: list[Planned] = []
    broken: list[tuple[StoredSchedule, str]] = []


Ids = dict[tuple[int, int], int]  # jobs by schedule and tick


class Ticks:
    """Decides ticks, and gives them their jobs."""

    def __init__(self, store: Store, rng: Random, add_queues: AddQueues) -> None:
        self._store = store
        self._rng = rng
        self._add_queues = add_queues
        self._limit = PAGE
        self._suspects: dict[int, str] = {}  # schedules that the tables have refused, why
        self._templates: dict[tuple[int, int], Spec] = {}  # by schedule and version

    def fire(self, now: int) -> int | None:
        """What is due is decided, as much of it as fits into a page. How many jobs that made; None: nothing was ours.

        If the tables refuse a page, the next ones are of one schedule each, until it is known which one they refuse.
        """
        found = [StoredSchedule(*row) for row in self._store.ask("due_schedules", now=now, limit=self._limit)]
        if not found:
            return None
        failpoint("schedule.before_tick")
        try:
            self._write(*self._decide(found, now), now)
        except Undone:
            raise
        except Exception as error:
            if self._limit == 1:
                self._suspects[found[0].id] = f"{type(error).__name__}: {error}"
            self._limit = 1
            raise
        self._limit = PAGE
        failpoint("schedule.before_commit")
        return self._made

    # ── deciding ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _decide(self, found: Sequence[StoredSchedule], now: int) -> tuple[Page, Ids]:
        begun, page = time.perf_counter(), Page()
        runs, ids = self.runs_of(found)
        for stored in found:
            if (page.planned or page.broken) and time.perf_counter() - begun > PAGE_S:
                break
            try:
                if why := self._suspects.pop(stored.id, None):
                    raise InvalidInput(why)
                self._decide_one(page, stored, runs.get(stored.id, ()), now)
            except Undone:
                raise
            except Exception as error:
                page.broken.append((stored, str(error) if isinstance(error, CoveyError) else repr(error)))
        return page, ids

    def _decide_one(self, page: Page, stored: StoredSchedule, runs: Sequence[Run], now: int) -> None:
        success = last_success(stored, runs)
        failures = sum(run.state == "dead" and run.tick > (success or 0) for run in runs)
        row, paused = stored.row(), None
        if stored.paused_at is not None and stored.resume_at is not None:  # that is over, else it were not due
            paused, row.next_at = schedules.unpaused(row, stored.resume_at, zone)
        plan = schedules.plan(row, now, runs, zone, failures=failures)
        if paused is not None:
            plan.decisions.insert(0, paused)
        jobs, refused = list[NewJob](), dict[int, str]()
        for each in plan.decisions:
            if each.decision == "fired":
                try:
                    jobs.append(NewJob(stored, each, self.spec(stored, each.tick, success)))
                except CoveyError as error:
                    refused[each.tick] = str(error)
        page.jobs.extend(jobs)
        page.planned.append(Planned(stored, plan, success, refused))

    def runs_of(self, found: Sequence[StoredSchedule]) -> tuple[dict[int, list[Run]], Ids]:
        """The jobs of earlier ticks, as rules see them, and their ids. What is over for good is closed."""
        ids = json.dumps([stored.id for stored in found])
        rows = self._store.ask("open_runs", ids=ids)
        minds = {stored.id for stored in found if stored.overlap != "allow"}
        if active := [job for id, _, job, state, _ in rows if id in minds and state not in (None, "completed")]:
            self._store.lock_trees(active)  # nobody ends, or is claimed, while we decide who waits for whom
            rows = self._store.ask("open_runs", ids=ids)
        runs: dict[int, list[Run]] = defaultdict(list)
        jobs: Ids = {}
        over = []
        for id, tick, job, state, has_processes in rows:
            run = Run(tick, state, bool(has_processes))
            runs[id].append(run)
            jobs[id, tick] = job
            if state is None or (state == "completed" and not run.has_processes):
                over.append({"id": id, "tick": tick})
        if over:
            self._store.many("close_ticks", over)
        return runs, jobs

    def spec(self, stored: StoredSchedule, tick: int, success: int | None) -> Spec:
        """The job of a tick; Duplicate if its unique key is taken."""
        template = self._template(stored)
        if template.unique_key is not None:
            (taken,) = arrivals.admit([replace(template, if_exists="return")], self._store)
            if taken is not None:
                raise Duplicate(f"the unique_key {template.unique_key!r} is taken by job {taken}", taken)
        if template.kind == "command":
            told = {"COVEY_SCHEDULE": stored.name, "COVEY_TICK": rfc3339(tick) or ""}
            told["COVEY_TICK_LOCAL"] = local(tick, zone(stored.row().when.tz)) or ""
            if success is not None:
                told["COVEY_PREVIOUS_SUCCESS"] = rfc3339(success) or ""
            asked = json.loads(template.args or "{}")
            asked["env"] = {**(asked.get("env") or {}), **told}
        else:
            asked = json.loads(template.args)[:2] if template.args else [[], {}]
            asked.append(
                {
                    "schedule": stored.name,
                    "tick": tick,
                    "previous_tick": stored.last_tick,
                    "previous_success": success,
                }
            )
        return replace(template, args=json.dumps(asked, separators=(",", ":"), ensure_ascii=False))

    def _template(self, stored: StoredSchedule) -> Spec:
        found = self._templates.get((stored.id, stored.version))
        if found is None:
            spec = job_spec(stored.name, json.loads(stored.job))
            found = replace(spec, created_by=spec.created_by or f"schedule {stored.name}"[:200])
            if len(self._templates) > 10_000:
                self._templates.clear()
            self._templates[stored.id, stored.version] = found
        return found

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, page: Page, known: Ids, now: int) -> None:
        made = self.add_jobs(page.jobs, known, now)
        self._made = len(made)
        failpoint("schedule.after_job")
        ticks = [
            tick_row(each.stored.id, decision, made, each.refused.get(decision.tick), known, now)
            for each in page.planned
            for decision in each.plan.decisions
        ]
        if ticks:
            self._store.many("insert_tick", ticks)
        for each in page.planned:
            self._tell(each, known, now)
        moves = [_moved(each, made, now) for each in page.planned]
        moves += [self._broken(stored, why, now) for stored, why in page.broken]
        self._store.many("fired_schedule", moves)

    _made = 0

    def add_jobs(self, wanted: Sequence[NewJob], known: Ids, now: int) -> Ids:
        """Each tick has its job, at once, or blocked until those before it have ended. Those that are new."""
        if not wanted:
            return {}
        self._add_queues({job.spec.queue_name for job in wanted}, now)
        queues, trees = Queues(self._store), Trees(self._store, now, self._rng)
        plain = [job for job in wanted if not job.decision.after and not job.decision.cancels]
        ids = arrivals.insert([job.spec for job in plain], now, self._store, queues)
        made = {(job.stored.id, job.decision.tick): id for job, id in zip(plain, ids, strict=True)}
        for job in wanted:
            key = (job.stored.id, job.decision.tick)
            if key not in made:
                made[key] = self._add_behind(job, {**known, **made}, queues, trees, now)
        return made

    def _add_behind(
        self, job: NewJob, known: Mapping[tuple[int, int], int], queues: Queues, trees: Trees, now: int
    ) -> int:
        """The job waits for those of earlier ticks, or they are cancelled for it."""
        spec, decision, schedule = job.spec, job.decision, job.stored.id
        if decision.after:
            (id,) = self._store.dialect.take_ids("jobs", 1)
            queue = spec.queue_name
            place = root(id, "blocked", starts_at(spec, now), queues.max_depth(queue), queues.lane(queue, id, queue))
            place = replace(place, blocked_by=EDGES)
            self._store.insert([id], [spec], [place], now, queues.defaults)
            for tick in decision.after:
                self._store.ask("add_edge", job_id=id, root=known[schedule, tick], always=1)
        else:
            (id,) = arrivals.insert([spec], now, self._store, queues)
        for tick in decision.cancels:
            if row := self._store.row(known[schedule, tick]):
                trees.cancel(row, f"cancelled for job {id}, of the next tick of schedule {job.stored.name}")
                trees.settle()
        return id

    def _broken(self, stored: StoredSchedule, why: str, now: int) -> dict[str, Any]:
        """It is tried again later; in the end it is paused, and says why. Nobody else waits for it."""
        tries = stored.errors + 1
        gives_up = tries >= TRIES
        note = f"it could not be decided {tries} times in a row: {why}"
        self._store.event("schedule_broken", now=now, text=f"{stored.name}: {note}")
        kept = {"next_at": stored.next_at, "errors": tries, **_pause_of(stored, now)}
        if gives_up:
            kept |= {"paused_at": now, "paused_by": "covey", "pause_note": note, "resume_at": None}
        return _move(stored) | kept | {"fire_at": None if gives_up else now + AGAIN * tries}

    def _tell(self, planned: Planned, known: Ids, now: int) -> None:
        """Nothing is left out in silence."""
        stored, plan = planned.stored, planned.plan
        if plan.moved_from is not None:
            text = f"{rfc3339(plan.moved_from)} is no tick any more; the rules of its time zone have changed"
            self._store.event("schedule_moved", now=now, text=f"{stored.name}: {text}; next: {rfc3339(plan.next_at)}")
        for each in plan.decisions:
            if each.tick in planned.refused:
                word, why = "refused", planned.refused[each.tick]
            elif each.decision == "fired":
                continue
            else:
                word, why = each.decision, _note(each, stored.id, known) or ""
            self._store.event(f"schedule_{word}", now=now, text=f"{stored.name}: tick {rfc3339(each.tick)}: {why}")
        if plan.pause is not None:
            self._store.event("schedule_paused", now=now, text=f"{stored.name}: {plan.pause}")


def job_spec(name: str, fields: Mapping[str, Any]) -> Spec:
    """The job that a schedule's object describes; InvalidInput, with the schedule's name, for what it cannot be."""
    try:
        check_known(fields)
        for word in ("id", "key", "run_at"):
            if fields.get(word) is not None:
                raise InvalidInput(f"its job cannot have {word!r}: every tick makes another job")
        return check_spec(spec_of(fields, defaults={}))
    except InvalidInput as error:
        raise InvalidInput(f"schedule {name!r}: {error}") from None


def last_success(stored: StoredSchedule, runs: Sequence[Run]) -> int | None:
    done = [run.tick for run in runs if run.state == "completed"]
    return max([*done, *([] if stored.last_success is None else [stored.last_success])], default=None)


def tick_row(schedule: int, decision: Decision, made: Ids, refused: str | None, known: Ids, now: int) -> dict[str, Any]:
    job = made.get((schedule, decision.tick))
    return {
        "id": schedule,
        "tick": decision.tick,
        "at": now,
        "decision": decision.decision if refused is None else "refused",
        "until": decision.until,
        "job_id": job,
        "open": int(job is not None),
        "note": refused if refused is not None else _note(decision, schedule, known),
    }


def _note(decision: Decision, schedule: int, known: Ids) -> str | None:
    if decision.decision != "skipped" or not decision.after:
        return decision.note
    in_the_way = known.get((schedule, decision.after[0]))
    return (
        f"{decision.note}: job {in_the_way}" if in_the_way else f"{decision.note} (tick {rfc3339(decision.after[0])})"
    )


def _moved(planned: Planned, made: Ids, now: int) -> dict[str, Any]:
    stored, plan = planned.stored, planned.plan
    fired = [each.tick for each in plan.decisions if (stored.id, each.tick) in made]
    moved = _move(stored) | {
        "next_at": plan.next_at,
        "fire_at": plan.fire_at,
        "last_tick": max((each.tick for each in plan.decisions), default=None),
        "last_job": made[stored.id, fired[-1]] if fired else None,
        "last_success": planned.success,
        "missed": sum(each.decision == "missed" for each in plan.decisions),
        "skipped": sum(each.decision == "skipped" for each in plan.decisions),
        "fired": int(bool(fired)),
        **_pause_of(stored, now),
    }
    if plan.pause is not None:
        pause = {"paused_at": now, "paused_by": "covey", "pause_note": plan.pause, "resume_at": None}
        moved |= {"fire_at": None, **pause}
    return moved


def _move(stored: StoredSchedule) -> dict[str, Any]:
    """What `fired_schedule` takes, for nothing to change."""
    unchanged = {"last_tick": None, "last_job": None, "last_success": None, "missed": 0, "skipped": 0, "fired": 0}
    return {"id": stored.id, "version": stored.version, "seen": stored.next_at, "errors": 0, **unchanged}


def _pause_of(stored: StoredSchedule, now: int) -> dict[str, Any]:
    """A pause with an end is over when the first tick after it has come."""
    if stored.is_paused(now):
        return {name: getattr(stored, name) for name in ("paused_at", "paused_by", "pause_note", "resume_at")}
    return {"paused_at": None, "paused_by": None, "pause_note": None, "resume_at": None}
