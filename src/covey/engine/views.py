"""What can be seen of a queue. Reads only; each view is one moment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from .. import __version__
from ..core import check, query
from ..core.clocks import SLACK
from ..core.model import ENDED, KINDS, STATES
from ..core.ports import Bell, Listener
from ..core.turn import WorkerState
from ..core.view import (
    Attempt,
    Branch,
    Counts,
    Event,
    Filter,
    Finding,
    JobView,
    Page,
    PoolView,
    QueueView,
    RunView,
    Sample,
    Status,
    Why,
    rfc3339,
)
from ..errors import InvalidInput, NotFound
from ..store.store import Store
from ..store.time_limit import limited
from . import duties, health, live_output, sealing, tallies
from .again import repeated
from .health import is_alive as is_alive
from .job_view import attempt_view, job_view
from .pool_view import pool_view
from .why import NAMED, Facts, Kin, explain

Ref = str | int

SCANNED = 100_000  # ids that one question without an index looks at, at most
WINDOW = 5_000  # of them at a time
SCAN_S = 0.2  # and for so long


class Views:
    """What can be seen of jobs, queues and pools."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, ref: Ref) -> JobView:
        found = self.jobs(Filter(ids=(id_of(self._store, ref),), limit=1)).jobs
        if not found:
            raise NotFound(f"no job {str(ref)!r}; `covey list` shows what there is")
        return live_output.with_info(self._store, found[0])

    def jobs_of(self, refs: Sequence[str]) -> dict[str, JobView]:
        """Those of these jobs that are there, by the id or key as it was given."""
        keys = [ref for ref in refs if not ref.isdecimal() and check.is_unicode(ref)]
        keyed: dict[str, int] = dict(self._store.ask("ids_of_keys", keys=json.dumps(keys))) if keys else {}
        ids = {ref: int(ref) if ref.isdecimal() and len(ref) < 19 else keyed.get(ref) for ref in refs}
        wanted = json.dumps([id for id in ids.values() if id is not None])
        found = {row.id: job_view(row) for row in self._store.records(["where_ids"], len(ids), ids=wanted)}
        return {ref: found[id] for ref, id in ids.items() if id is not None and id in found}

    def jobs(self, wanted: Filter) -> Page:
        """One page, newest first. Keyset paging: no job is missed or shown twice, whatever happens meanwhile."""
        if not 1 <= wanted.limit <= 10_000:
            raise InvalidInput(f"limit {wanted.limit}: from 1 to 10,000")
        asked = query.parse(wanted.query, self._clock())
        if asked.states:
            states = tuple(state for state in asked.states if not wanted.states or state in wanted.states)
            if not states:
                return Page([], None)
            wanted = replace(wanted, states=states)
        where, params = _conditions(wanted)
        if repeated := params.keys() & asked.params.keys():
            raise InvalidInput(f"{min(repeated)} is said in the query and beside it; say it once")
        where += [condition.name for condition in asked.conditions]
        params |= asked.params
        if asked.scans:
            return self._scan(where, params, wanted)
        rows = self._store.records(where, wanted.limit + 1, **params)
        more = len(rows) > wanted.limit
        jobs = [job_view(row) for row in rows[: wanted.limit]]
        return Page(jobs, jobs[-1].id if more else None)

    def _scan(self, where: list[str], params: dict[str, Any], wanted: Filter) -> Page:
        """The same where no index helps: window by window, newest first, over so many ids and for so long."""
        deadline = time.monotonic() + SCAN_S
        newest = self._store.value("newest") or 0
        upper = min(wanted.before if wanted.before is not None else newest + 1, newest + 1)
        lowest = max(1, upper - SCANNED)
        where = [*dict.fromkeys([*where, "where_before", "where_floor"])]
        found: list[JobView] = []
        while upper > lowest and len(found) <= wanted.limit:
            params["before"], params["floor"] = upper, max(lowest, upper - WINDOW)
            found += map(job_view, self._store.records(where, wanted.limit + 1 - len(found), **params))
            upper = params["floor"]
            if time.monotonic() > deadline:
                break
        if len(found) > wanted.limit:
            return Page(found[: wanted.limit], found[wanted.limit - 1].id)
        return Page(found, upper, looked_to=upper) if upper > 1 else Page(found, None)

    def newest_id(self) -> int:
        """The highest id in the table, 0 when it is empty: how far a sweep has to go."""
        page = self.jobs(Filter(limit=1)).jobs
        return page[0].id if page else 0

    def tree(self, ref: Ref, limit: int = 50, after: int | None = None) -> Branch:
        """A job and one page of its children. Keyset paging: the first page of 100,000 costs as much as that of 100."""
        if not 1 <= limit <= 10_000:
            raise InvalidInput(f"limit {limit}: from 1 to 10,000")
        job = self.job(ref)
        last = -1 if after is None else after
        rows = self._store.records(["where_parent"], limit + 1, "j.child_no", parent=job.id, after=last)
        children = [job_view(row) for row in rows[:limit]]
        return Branch(job, children, children[-1].child_no if len(rows) > limit else None)

    def history(self, ref: Ref) -> list[Attempt]:
        return [attempt_view(row) for row in self._store.ask("attempts_of", id=id_of(self._store, ref))]

    def wait_for(self, ids: Sequence[int], timeout_s: float | None, *, any_of: bool = False) -> bool:
        """True when all (or any) have ended; a pruned job has. Looks once a second, and whenever the bell rings."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        open_ids = list(dict.fromkeys(ids))
        ear = self.listen()
        try:
            while True:
                ended = self.ended(open_ids)
                still = [id for id in open_ids if id not in ended]
                if not still or (any_of and len(still) < len(open_ids)):
                    return True
                open_ids = still
                left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                if left <= 0:
                    return False
                if ear is None:
                    time.sleep(min(left, 0.1))
                elif ear.wait(left) and len(open_ids) > 1000:
                    time.sleep(min(left, 0.05))  # many jobs end at once: look at them together
        finally:
            if ear:
                ear.close()

    def listen(self, bell: Bell = "end") -> Listener | None:
        """Hears when jobs end, or when there is something for pools; None where no bell can be hung."""
        try:
            return self._store.listen(bell)
        except OSError:
            return None

    def ended(self, ids: Sequence[int]) -> set[int]:
        """Those of them that have ended; a job that is no longer there has."""
        states: dict[int, str] = dict(self._store.ask("states_of", ids=json.dumps(list(ids))))
        return {id for id in ids if id not in states or states[id] in ENDED}

    def outcomes(self, parent: int) -> str:
        """How the children of a join have ended, as JSON."""
        return self._store.outcomes(parent)

    def within(self, limit_s: float) -> AbstractContextManager[None]:
        """What is asked in the block only reads, and raises TooLong when it has taken so many seconds in all."""
        return limited(self._store.dialect, limit_s)

    def queues_of(self, refs: Sequence[str]) -> dict[str, str]:
        """The queue of each job, by its id or key as it was given, of those that are there."""
        ids = {ref: int(ref) for ref in refs if ref.isdecimal() and len(ref) < 19}
        keys = [ref for ref in refs if not ref.isdecimal()]
        found: dict[int, str] = dict(self._store.ask("queues_of_ids", ids=json.dumps(list(ids.values()))))
        keyed: dict[str, str] = dict(self._store.ask("queues_of_keys", keys=json.dumps(keys))) if keys else {}
        return keyed | {ref: found[id] for ref, id in ids.items() if id in found}

    def why(self, ref: Ref) -> Why:
        """Why the job is in its state, and what would change that."""
        job = self.job(ref)
        ahead = 0
        if job.state == "pending":
            (priority, seq), *_ = self._store.ask("place", id=job.id)
            ahead = self._store.value("position", queue=job.queue, priority=priority, seq=seq, id=job.id)
        queue = next((q for q in self._queues({}) if q.name == job.queue), None)
        events = self.events(job.id, limit=5)
        kin = self._kin(job, queue)
        uncached = next((event.text for event in events if event.kind == "uncached"), None)
        return explain(Facts(job, queue, self.pool_views(), ahead, self._clock(), kin, uncached), events)

    def _kin(self, job: JobView, queue: QueueView | None) -> Kin:
        ask = self._store.ask
        if job.state == "waiting":
            return Kin(children=[row[0] for row in ask("unfinished_children", parent=job.id, limit=NAMED + 1)])
        if job.state == "blocked" and (flight := self._store.value("flight_followed", id=job.id)) is not None:
            return Kin(flight=flight)
        if job.state == "blocked" and job.parent_id is not None:
            return Kin(before=self._store.value("earlier_child", parent=job.parent_id, before=job.child_no))
        if job.state == "blocked":
            return Kin(roots=[(root, outcome) for root, outcome in ask("roots_waited_for", id=job.id, limit=100)])
        if job.state != "pending" or queue is None or not (queue.serial or queue.concurrency):
            return Kin()
        (lane, owner, running), *_ = ask("place_in_lane", id=job.id)
        return Kin(lane_of=owner if lane and owner not in (None, lane) else None, running=running)

    def events(self, ref: Ref | None = None, limit: int = 100) -> list[Event]:
        """The latest, newest first."""
        if ref is None:
            rows = self._store.ask("events", limit=limit)
        else:
            rows = self._store.ask("events_of_job", id=id_of(self._store, ref), limit=limit)
        return [_event(row) for row in rows]

    def pool_events(self, pool: int | None = None, *, after: int = 0, limit: int = 100) -> list[Event]:
        """What happened to pools and workers, newest first."""
        return [_event(row) for row in self._store.ask("events_of_pools", pool=pool, after=after, limit=limit)]

    # ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────

    @repeated
    def status(self) -> Status:
        with self._store.snapshot():
            counts = self._counts()
            queues = self._queues(counts)
            pools = self.pool_views()
            (database_id, schema, sealed), *_ = self._store.ask("meta")
            oldest = self._store.value("oldest_pending")
            next_run_at = self._store.instants().due_at
            orphans = self._store.value("orphans")
            waiting = self._store.ask("ready_lanes", queues=None, kinds=json.dumps(KINDS))
            stranded = self._store.ask("stranded", limit=health.MOST_NAMES + 1)
            stored: dict[str, str] = dict(self._store.ask("config"))
            now = self._clock()
            ill = self._store.ask("ill_schedules", late=now - health.OVERDUE, skipped=health.SKIPPED, limit=100)
            ahead = self._store.ask("ahead", ahead=now + SLACK, late=now + duties.LONGEST_PERIOD + SLACK)
        totals: dict[str, int] = {state: sum(per.get(state, 0) for per in counts.values()) for state in STATES}
        living = [pool for pool in pools if is_alive(pool)]
        findings = health.examine(
            pools, queues, waiting, orphans=orphans, dead=totals["dead"], ahead=ahead, stranded=stranded
        )
        findings += health.ill_schedules(ill, now, living=bool(living))
        findings = sorted([*findings, *self.disk()], key=health.rank)
        if sealed:
            findings = [sealing.finding(sealed)]  # the rest is no longer this queue's concern
        return Status(
            database=self._store.dialect.url,
            database_id=database_id,
            schema=schema,
            durability=stored.get("durability", "full"),
            version=__version__,
            health=health.verdict(findings),
            notes=[health.sentence(finding) for finding in findings],
            findings=findings,
            counts=totals,
            queues=queues,
            pools=len(living),
            workers=sum(worker.state != "dead" for pool in living for worker in pool.workers),
            oldest_pending_s=None if oldest is None else max(0.0, (now - oldest) / 1e6),
            next_run_at=rfc3339(next_run_at),
        )

    def disk(self) -> list[Finding]:
        """What is wrong with the room on the disks of this host; a broken one stores nothing."""
        return health.disk(getattr(self._store.dialect, "path", ""), self._store.dialect.side)

    @repeated
    def queues(self) -> list[QueueView]:
        with self._store.snapshot():
            return self._queues(self._counts())

    @repeated
    def counts(self) -> Counts:
        """How many jobs of each queue are in each state."""
        with self._store.snapshot():
            return self._counts()

    def oldest(self) -> dict[str, tuple[int | None, int | None]]:
        """Of each queue since when the oldest job waits that could run, and since when the oldest run lasts."""
        waiting: dict[str, int | None] = dict(self._store.ask("oldest_ready"))
        running: dict[str, int | None] = dict(self._store.ask("oldest_runs"))
        return {name: (waiting.get(name), running.get(name)) for name in waiting.keys() | running.keys()}

    def samples(self, since: int) -> list[Sample]:
        """How each queue stood minute by minute, from the minute ``since`` on."""
        return tallies.samples(self._store, since)

    def ever_ended(self) -> tuple[Counts, Counts]:
        """(How many jobs of each queue are in each state, how many of each state were removed), ever."""
        with self._store.snapshot():
            return self._counts(), tallies.ended(self._store)

    def latest_runs(self, since: int, most: int = 20_000) -> list[RunView]:
        """What ran since that instant, among the newest jobs: whatever there is to see without an index."""
        return [tallies.run_of(row) for row in self._store.ask("latest_runs", since=since, most=most)]

    def counted_queues(self, counts: Counts) -> list[QueueView]:
        """The queues as they are now, with what was counted before."""
        return self._queues(counts)

    def moment(self) -> Any:
        """As long as it is the same, nobody else has written anything. It need not differ when it could."""
        return self._store.value("moment")

    def pool_views(self) -> list[PoolView]:
        now = self._clock()
        workers: dict[int, list[WorkerState]] = {}
        for pool, name, kind, state, pid, ticks, started_at, *rest in self._store.ask("worker_rows"):
            workers.setdefault(pool, []).append(WorkerState(name, kind, state, pid, ticks, started_at, *rest))
        return [pool_view(row, workers.get(row[0], []), now) for row in self._store.ask("pool_rows")]

    def _counts(self) -> Counts:
        return tallies.counts(self._store)

    def _queues(self, counts: Counts) -> list[QueueView]:
        now = self._clock()
        return [
            QueueView(
                name=name,
                paused=paused_at is not None and (resume_at is None or resume_at > now),
                resume_at=rfc3339(resume_at),
                serial=bool(serial),
                concurrency=concurrency,
                max_depth=max_depth,
                counts=counts.get(name, {}),
            )
            for name, paused_at, resume_at, serial, concurrency, max_depth in self._store.ask("queues")
        ]


def id_of(store: Store, ref: Ref) -> int:
    """The id behind an id or a key."""
    text = str(ref)
    if text.isdecimal():
        return int(text) if len(text) < 19 else -1
    check.check_refs([text])
    id = store.value("id_of_key", key=text)
    if id is None:
        raise NotFound(f"no job with the key {text!r}; `covey list` shows what there is")
    return int(id)


def _conditions(wanted: Filter) -> tuple[list[str], dict[str, Any]]:
    """Names of the conditions, so that single states can use their own small index."""
    for state in wanted.states:
        if state not in STATES:
            raise InvalidInput(f"no state {state!r}; states are {', '.join(STATES)}")
    check.check_filter(queue=wanted.queue, task=wanted.task, batch=wanted.batch)
    where: list[str] = []
    params: dict[str, Any] = {}
    if wanted.states in (("dead",), ("processing",)):
        where.append(f"where_{wanted.states[0]}")
    elif wanted.states:
        where.append("where_states")
        params["states"] = json.dumps(wanted.states)
    for name in ("queue", "task", "batch", "before"):
        if (value := getattr(wanted, name)) is not None:
            where.append(f"where_{name}")
            params[name] = value
    if wanted.ids is not None:
        where.append("where_ids")
        params["ids"] = json.dumps(wanted.ids)
    return where, params


def _event(row: tuple[Any, ...]) -> Event:
    id, at, kind, job, pool, worker, text = row
    return Event(id=id, at=rfc3339(at), kind=kind, job_id=job, pool=pool, worker=worker, text=text)
