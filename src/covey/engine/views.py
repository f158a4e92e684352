"""What can be seen of a queue. Reads only; each view is one moment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from .. import __version__
from ..core import check
from ..core.clocks import SLACK, age_s
from ..core.codec import decode, printable
from ..core.label import parts
from ..core.model import ENDED, KINDS, SHELL, STATES
from ..core.specs import command_line
from ..core.tree import with_children
from ..core.turn import WorkerState
from ..core.view import (
    Attempt,
    Branch,
    ChildCounts,
    Event,
    Filter,
    Finding,
    JobView,
    Page,
    PoolView,
    QueueView,
    Status,
    Why,
    WorkerView,
    rfc3339,
)
from ..errors import InvalidInput, NotFound
from ..store.store import Store
from . import duties, health, live_output, sealing
from .again import repeated
from .health import is_alive as is_alive
from .why import NAMED, Kin, explain

Ref = str | int
Counts = dict[str, dict[str, int]]  # queue, state


class Views:
    """The reading half of the Client."""

    store: Store
    clock: Callable[[], int]
    database_id: str

    def _id(self, ref: Ref) -> int:
        raise NotImplementedError

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, ref: Ref) -> JobView:
        found = self.jobs(Filter(ids=(self._id(ref),), limit=1)).jobs
        if not found:
            raise NotFound(f"no job {str(ref)!r}; `covey list` shows what there is")
        return live_output.with_info(self.store, found[0])

    def jobs_of(self, refs: Sequence[str]) -> dict[str, JobView]:
        """Those of these jobs that are there, by the id or key as it was given."""
        keys = [ref for ref in refs if not ref.isdecimal() and check.is_unicode(ref)]
        keyed: dict[str, int] = dict(self.store.ask("ids_of_keys", keys=json.dumps(keys))) if keys else {}
        ids = {ref: int(ref) if ref.isdecimal() and len(ref) < 19 else keyed.get(ref) for ref in refs}
        wanted = json.dumps([id for id in ids.values() if id is not None])
        found = {row[0]: _job(row) for row in self.store.views(["where_ids"], len(ids), ids=wanted)}
        return {ref: found[id] for ref, id in ids.items() if id is not None and id in found}

    def jobs(self, wanted: Filter) -> Page:
        """One page, newest first. Keyset paging: no job is missed or shown twice, whatever happens meanwhile."""
        if not 1 <= wanted.limit <= 10_000:
            raise InvalidInput(f"limit {wanted.limit}: from 1 to 10,000")
        where, params = _conditions(wanted)
        rows = self.store.views(where, wanted.limit + 1, **params)
        more = len(rows) > wanted.limit
        jobs = [_job(row) for row in rows[: wanted.limit]]
        return Page(jobs, jobs[-1].id if more else None)

    def tree(self, ref: Ref, limit: int = 50, after: int | None = None) -> Branch:
        """A job and one page of its children. Keyset paging: the first page of 100,000 costs as much as that of 100."""
        if not 1 <= limit <= 10_000:
            raise InvalidInput(f"limit {limit}: from 1 to 10,000")
        job = self.job(ref)
        last = -1 if after is None else after
        rows = self.store.views(["where_parent"], limit + 1, "j.child_no", parent=job.id, after=last)
        children = [_job(row) for row in rows[:limit]]
        return Branch(job, children, children[-1].child_no if len(rows) > limit else None)

    def history(self, ref: Ref) -> list[Attempt]:
        return [_attempt(row) for row in self.store.ask("attempts_of", id=self._id(ref))]

    def wait_for(self, ids: Sequence[int], timeout_s: float | None, *, any_of: bool = False) -> bool:
        """True when all (or any) have ended; a pruned job has. Looks once a second, and whenever the bell rings."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        open_ids = list(dict.fromkeys(ids))
        try:
            ear = self.store.listen("end")
        except OSError:
            ear = None
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

    def ended(self, ids: Sequence[int]) -> set[int]:
        """Those of them that have ended; a job that is no longer there has."""
        states: dict[int, str] = dict(self.store.ask("states_of", ids=json.dumps(list(ids))))
        return {id for id in ids if id not in states or states[id] in ENDED}

    def queues_of(self, refs: Sequence[str]) -> dict[str, str]:
        """The queue of each job, by its id or key as it was given, of those that are there."""
        ids = {ref: int(ref) for ref in refs if ref.isdecimal() and len(ref) < 19}
        keys = [ref for ref in refs if not ref.isdecimal()]
        found: dict[int, str] = dict(self.store.ask("queues_of_ids", ids=json.dumps(list(ids.values()))))
        keyed: dict[str, str] = dict(self.store.ask("queues_of_keys", keys=json.dumps(keys))) if keys else {}
        return keyed | {ref: found[id] for ref, id in ids.items() if id in found}

    def why(self, ref: Ref) -> Why:
        """Why the job is in its state, and what would change that."""
        job = self.job(ref)
        ahead = 0
        if job.state == "pending":
            (priority, seq), *_ = self.store.ask("place", id=job.id)
            ahead = self.store.value("position", queue=job.queue, priority=priority, seq=seq, id=job.id)
        queue = next((q for q in self._queues({}) if q.name == job.queue), None)
        events = self.events(job.id, limit=5)
        kin = self._kin(job, queue)
        return explain(job, self.history(job.id), queue, self.pool_views(), events, ahead, self.clock(), kin)

    def _kin(self, job: JobView, queue: QueueView | None) -> Kin:
        ask = self.store.ask
        if job.state == "waiting":
            return Kin(children=[row[0] for row in ask("unfinished_children", parent=job.id, limit=NAMED + 1)])
        if job.state == "blocked" and job.parent_id is not None:
            return Kin(before=self.store.value("earlier_child", parent=job.parent_id, before=job.child_no))
        if job.state == "blocked":
            return Kin(roots=[(root, outcome) for root, outcome in ask("roots_waited_for", id=job.id, limit=100)])
        if job.state != "pending" or queue is None or not (queue.serial or queue.concurrency):
            return Kin()
        (lane, owner, running), *_ = ask("place_in_lane", id=job.id)
        return Kin(lane_of=owner if lane and owner not in (None, lane) else None, running=running)

    def events(self, ref: Ref | None = None, limit: int = 100) -> list[Event]:
        """The latest, newest first."""
        if ref is None:
            rows = self.store.ask("events", limit=limit)
        else:
            rows = self.store.ask("events_of_job", id=self._id(ref), limit=limit)
        return [_event(row) for row in rows]

    def pool_events(self, pool: int | None = None, *, after: int = 0, limit: int = 100) -> list[Event]:
        """What happened to pools and workers, newest first."""
        return [_event(row) for row in self.store.ask("events_of_pools", pool=pool, after=after, limit=limit)]

    # ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────

    @repeated
    def status(self) -> Status:
        with self.store.snapshot():
            counts = self._counts()
            queues = self._queues(counts)
            pools = self.pool_views()
            (database_id, schema, sealed), *_ = self.store.ask("meta")
            oldest = self.store.value("oldest_pending")
            next_run_at = self.store.value("next_due")
            orphans = self.store.value("orphans")
            waiting = self.store.ask("ready_lanes", queues=None, kinds=json.dumps(KINDS))
            stranded = self.store.ask("stranded", limit=health.MOST_NAMES + 1)
            stored: dict[str, str] = dict(self.store.ask("config"))
            now = self.clock()
            ahead = self.store.ask("ahead", ahead=now + SLACK, late=now + duties.PERIOD + SLACK)
        totals: dict[str, int] = {state: sum(per.get(state, 0) for per in counts.values()) for state in STATES}
        living = [pool for pool in pools if is_alive(pool)]
        findings = health.examine(
            pools, queues, waiting, orphans=orphans, dead=totals["dead"], ahead=ahead, stranded=stranded
        )
        findings = sorted([*findings, *self.disk()], key=health.rank)
        if sealed:
            findings = [sealing.finding(sealed)]  # the rest is no longer this queue's concern
        return Status(
            database=self.store.dialect.url,
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
        return health.disk(getattr(self.store.dialect, "path", ""), self.store.dialect.side)

    @repeated
    def queues(self) -> list[QueueView]:
        with self.store.snapshot():
            return self._queues(self._counts())

    @repeated
    def counts(self) -> Counts:
        """How many jobs of each queue are in each state. Every row is looked at."""
        with self.store.snapshot():
            return self._counts()

    def counted_queues(self, counts: Counts) -> list[QueueView]:
        """The queues as they are now, with what was counted before."""
        return self._queues(counts)

    def moment(self) -> Any:
        """As long as it is the same, nobody else has written anything. It need not differ when it could."""
        return self.store.value("moment")

    def pool_views(self) -> list[PoolView]:
        now = self.clock()
        workers: dict[int, list[WorkerState]] = {}
        for pool, name, kind, state, pid, ticks, started_at, *rest in self.store.ask("worker_rows"):
            workers.setdefault(pool, []).append(WorkerState(name, kind, state, pid, ticks, started_at, *rest))
        return [_pool(row, workers.get(row[0], []), now) for row in self.store.ask("pool_rows")]

    def _counts(self) -> Counts:
        counts: Counts = {}
        for queue, state, count in self.store.ask("counts"):
            counts.setdefault(queue, {})[state] = count
        return counts

    def _queues(self, counts: Counts) -> list[QueueView]:
        now = self.clock()
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
            for name, paused_at, resume_at, serial, concurrency, max_depth in self.store.ask("queues")
        ]


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


def _job(row: tuple[Any, ...]) -> JobView:
    (id, key, queue, task, args, state, phase, priority, attempts, max_attempts, run_at, created_at, updated_at) = row[
        :13
    ]
    (started_at, finished_at, timeout_s, cwd, pool, worker, pool_name, beat_at, lease_s, exit_code, error) = row[13:24]
    (result, parent_id, root_id, total, unfinished, failed, batch, labels, interruptions, info, kind, fence) = row[
        24:36
    ]
    busy_worker, busy_since, depth, child_no, children_info, pool_host = row[36:42]
    ran_by, ran_in, ran_on = parts(worker)
    held = pool is not None
    arguments = None if args is None else decode(args)
    command = command_line(arguments) if task == SHELL and arguments else None
    return JobView(
        id=id,
        key=key,
        queue=queue,
        task=task,
        command=command,
        args=arguments,
        state=state,
        phase=phase,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        max_retries=max_attempts,
        run_at=rfc3339(run_at),
        created_at=rfc3339(created_at),
        updated_at=rfc3339(updated_at),
        started_at=rfc3339(busy_since if busy_since is not None else started_at),
        finished_at=rfc3339(finished_at),
        timeout=timeout_s,
        cwd=cwd,
        pool=pool,
        worker=busy_worker if state == "processing" else ran_by,  # who ran it before does not run it now
        locked_by=pool_name if held else None,
        locked_until=rfc3339(beat_at + int(lease_s * 1e6)) if held and beat_at is not None else None,
        retry_at=rfc3339(run_at) if state == "failed" else None,
        exit_code=exit_code,
        error=error,
        result=None if result is None else decode(result),
        parent_id=parent_id,
        root_id=root_id,
        children=ChildCounts(
            total, unfinished, failed, total - unfinished, (total - unfinished) / total if total else None
        ),
        batch=batch,
        labels=None if labels is None else decode(labels),
        interruptions=interruptions,
        info=with_children(*(None if text is None else decode(text) for text in (info, children_info))),
        kind=kind,
        fence=fence,
        depth=depth,
        child_no=child_no,
        pool_name=pool_name if held else ran_in,
        host=pool_host if held else ran_on,
    )


def _attempt(row: tuple[Any, ...]) -> Attempt:
    (
        number,
        fence,
        outcome,
        worker,
        pool,
        started_at,
        finished_at,
        exit_code,
        error,
        detail,
        out,
        err,
        lost_out,
        lost_err,
    ) = row
    ran_by, pool_name, host = parts(worker)
    return Attempt(
        number=number,
        fence=fence,
        outcome=outcome,
        worker=ran_by,
        pool=pool,
        started_at=rfc3339(started_at),
        finished_at=rfc3339(finished_at),
        exit_code=exit_code,
        error=error,
        detail=detail,
        stdout=printable(out or b""),
        stderr=printable(err or b""),
        stdout_dropped=lost_out,
        stderr_dropped=lost_err,
        pool_name=pool_name,
        host=host,
    )


def _event(row: tuple[Any, ...]) -> Event:
    id, at, kind, job, pool, worker, text = row
    return Event(id=id, at=rfc3339(at), kind=kind, job_id=job, pool=pool, worker=worker, text=text)


def _pool(row: tuple[Any, ...], workers: list[WorkerState], now: int) -> PoolView:
    id, name, host, boot_id, pid, ticks, queues, kinds, count, types, app, log, given_up = row[:13]
    version, beat_at, lease_s, registered_at, stop_requested_at, draining_at, held = row[13:]
    beat_age_s = age_s(beat_at, now)
    return PoolView(
        id=id,
        name=name,
        host=host,
        boot=boot_id,
        pid=pid,
        ticks=ticks,
        queues=None if queues is None else decode(queues),
        kinds=decode(kinds),
        count=count,
        types=None if types is None else decode(types),
        app=app,
        log=log,
        given_up={} if given_up is None else decode(given_up),
        version=version,
        beat_at=rfc3339(beat_at),
        beat_age_s=beat_age_s,
        lease_s=lease_s,
        registered_at=rfc3339(registered_at),
        state="stopping" if stop_requested_at else "draining" if draining_at else "running",
        held=held,
        workers=[_worker(worker, id, host, beat_age_s) for worker in workers],
    )


def _worker(worker: WorkerState, pool: int, host: str, beat_age_s: float) -> WorkerView:
    is_command = worker.kind == "command"
    return WorkerView(
        id=f"{pool}/{worker.name}",
        name=worker.name,
        pool=pool,
        host=host,
        queue=worker.queue,
        kind="command" if is_command else "python",
        mode=None if is_command else worker.kind,
        state=worker.state,
        pid=worker.pid,
        ticks=worker.ticks,
        started_at=rfc3339(worker.started_at),
        beat_age_s=beat_age_s,
        job_id=worker.job_id,
        fence=worker.fence,
        busy_since=rfc3339(worker.busy_since),
        done=worker.done,
        failed=worker.failed,
        memory=worker.memory,
        error=worker.error,
    )
