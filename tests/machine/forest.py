"""A naive model of trees: no counters, no indexes, everything looked up again until nothing changes any more."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec import Struct, field

from covey.core.machine import Signal, Transition, decide
from covey.core.model import ENDED, JobRow
from covey.errors import Refused

LANE = "lane"  # the serial queue


class Job(Struct):
    """A row of the rules, and what else the model knows of it."""

    row: JobRow
    run_at: int = 0
    unique_key: str | None = None
    edges: dict[int, str | None] = field(default_factory=dict)  # root → how it ended
    always: set[int] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.row.state in ENDED

    def apply(self, change: Transition) -> None:
        row = self.row
        row.state = change.state
        row.fence += change.fence
        row.attempts = 0 if change.fresh_attempts else row.attempts + change.attempts
        row.interruptions = 0 if change.fresh_attempts else row.interruptions + change.interruptions
        row.pool = row.pool if change.keeps_pool else None
        row.phase = change.phase or row.phase
        if change.run_at is not None:
            self.run_at = row.run_at = change.run_at
        if self.ended:
            self.unique_key = None


def new_job(id: int, **fields: Any) -> Job:
    values: dict[str, Any] = {
        "id": id,
        "state": "pending",
        "fence": 0,
        "attempts": 0,
        "max_attempts": 2,
        "interruptions": 0,
        "pool": None,
        "phase": "run",
        "backoff_base": 2.0,
        "backoff_cap_s": 300.0,
        "jitter": 0,
        "parent_id": None,
        "root_id": id,
        "children_total": 0,
        "children_unfinished": 0,
        "children_failed": 0,
        "joins": 0,
        "on_error": "wait",
        "queue": "default",
        "key": None,
        "seq": id,
        "max_depth": 2,
    }
    return Job(JobRow(**values | fields))


class Forest:
    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.owner: int | None = None  # whose lane it is
        self.known: set[int] = set()  # failures that have had their consequences
        self.last_id = 0
        self.now = 0

    def take_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def children(self, id: int) -> list[Job]:
        found = [job for job in self.jobs.values() if job.row.parent_id == id]
        return sorted(found, key=lambda job: job.row.child_no or 0)

    def below(self, id: int) -> Iterator[Job]:
        for child in self.children(id):
            yield child
            yield from self.below(child.row.id)

    def counted(self, job: Job) -> JobRow:
        """The row with its children counted."""
        children = self.children(job.row.id)
        job.row.children_total = len(children)
        job.row.children_unfinished = sum(not child.ended for child in children)
        job.row.children_failed = sum(child.row.state in ("dead", "cancelled") for child in children)
        return job.row

    def signal(self, job: Job, name: str, **fields: Any) -> Transition:
        change = decide(self.counted(job), Signal(name, **fields), self.now, Random(0))  # type: ignore[arg-type]
        job.apply(change)
        return change

    # ── what follows from anything ──────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        while any([self._settle_parents(), self._settle_uncles()]):
            pass
        if self.owner is not None and self.is_over(self.owner):
            self.owner = None

    def is_over(self, root: int) -> bool:
        job = self.jobs.get(root)
        return job is None or (job.ended and job.row.pool is None and not self._held(root))

    def _held(self, root: int) -> bool:
        return any(job.row.root_id == root and job.row.pool is not None for job in self.jobs.values())

    def _settle_parents(self) -> bool:
        failed = {id for id, job in self.jobs.items() if job.row.state in ("dead", "cancelled")}
        fresh, self.known = failed - self.known, failed
        for id in fresh:
            parent = self.jobs.get(self.jobs[id].row.parent_id or 0)
            if parent is not None and parent.row.state == "waiting" and parent.row.on_error == "cancel":
                for child in self.children(parent.row.id):
                    if not child.ended:
                        self.cancel(child)
        return self._settle_waiting() or bool(fresh)

    def _settle_waiting(self) -> bool:
        for job in self.jobs.values():
            if job.row.state != "waiting":
                continue
            children = self.children(job.row.id)
            unfinished = [child for child in children if not child.ended]
            failed = [child for child in children if child.row.state in ("dead", "cancelled")]
            if not unfinished:
                self.signal(job, "children_ended")
                return True
            if job.row.child_mode == "serial":
                later = [c for c in unfinished if failed and (c.row.child_no or 0) > (failed[0].row.child_no or 0)]
                for child in later:
                    self.cancel(child)
                if later:
                    return True
                if unfinished[0].row.state == "blocked":
                    self.signal(unfinished[0], "unblocked")
                    return True
        return False

    def _settle_uncles(self) -> bool:
        for job in self.jobs.values():
            for root, outcome in job.edges.items():
                if outcome != "ok":
                    job.edges[root] = self._outcome(root)
        for job in self.jobs.values():
            if job.row.state != "blocked" or job.row.parent_id is not None or None in job.edges.values():
                continue
            if "ok" in job.edges.values() or job.always:
                self.signal(job, "unblocked")
                return True
            if set(job.edges.values()) == {"gone"}:
                self.signal(job, "cancel")
                return True
        return False

    def _outcome(self, root: int) -> str | None:
        if root not in self.jobs:
            return "gone"
        if not self.is_over(root):
            return None
        return {"completed": "ok", "dead": "bad", "cancelled": "gone"}[self.jobs[root].row.state]

    # ── verbs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def cancel(self, job: Job) -> None:
        self.signal(job, "cancel")
        for each in self.below(job.row.id):
            if not each.ended:
                self.signal(each, "cancel")

    def claimable(self, count: int) -> list[int]:
        """The next ones in order; of the serial queue those of one tree only."""
        ready = [job.row for job in self.jobs.values() if job.row.state == "pending"]
        ready.sort(key=lambda row: (row.seq, row.id))
        lane = [row for row in ready if row.queue == LANE]
        if self.owner is None:
            lane = lane[:count]
        bound = {row.id: self.jobs[row.root_id].row.queue == LANE for row in lane}
        chosen: list[int] = []
        owner = self.owner
        for row in ready:
            if row.queue == LANE:
                if row not in lane or (bound[row.id] and owner not in (None, row.root_id)):
                    continue
                owner = row.root_id if bound[row.id] else owner
            chosen.append(row.id)
            if len(chosen) == count:
                break
        self.owner = owner
        return chosen

    def retry(self, job: Job, *, all: bool) -> None:
        """Refused leaves the model half changed: the caller tries it on a copy."""
        row = self.counted(job)
        blocked = self._blocked(job)
        if row.state == "failed":
            self.signal(job, "retry")
            return
        if row.pool is not None or (row.state in ENDED and self._held_below(row.id) and (all or row.phase == "run")):
            raise Refused("still stopping")
        if row.state in ("dead", "cancelled"):
            ancestors = self._ancestors(job)
        self.signal(job, "retry", all=all, blocked=blocked)
        if all:
            for each in list(self.below(row.id)):
                del self.jobs[each.row.id]
        elif row.state == "waiting":
            self._reopen_below(job)
        parent = self.jobs.get(row.parent_id or 0)
        if parent is not None and parent.row.child_mode == "serial":
            for later in self.children(parent.row.id):
                if (later.row.child_no or 0) > (row.child_no or 0) and later.row.state in ("dead", "cancelled"):
                    if later.row.pool is not None:
                        raise Refused("still stopping")
                    self._reopen(later, blocked=True)
        for ancestor in ancestors:
            if ancestor.row.state == "dead":
                ancestor.row.state, ancestor.row.phase = "waiting", "run"

    def _held_below(self, id: int) -> bool:
        return any(job.row.pool is not None for job in self.below(id))

    def _blocked(self, job: Job) -> bool:
        parent = self.jobs.get(job.row.parent_id or 0)
        if parent is None:
            return None in job.edges.values()
        if parent.row.child_mode != "serial":
            return False
        earlier = [c for c in self.children(parent.row.id) if (c.row.child_no or 0) < (job.row.child_no or 0)]
        unready = [child for child in earlier if child.row.state != "completed"]
        if job.ended and any(child.ended for child in unready):
            raise Refused("not in order")
        return bool(unready)

    def _ancestors(self, job: Job) -> list[Job]:
        found: list[Job] = []
        at = job
        while at.row.parent_id is not None:
            at = self.jobs[at.row.parent_id]
            found.append(at)
        if any(each.row.state == "cancelled" for each in found):
            raise Refused("cancelled above")
        for place, each in enumerate(found):
            if each.row.state == "waiting":
                return found[:place]
            if each.row.state != "dead":
                raise Refused("done without it")
        return found

    def _reopen(self, job: Job, *, blocked: bool) -> None:
        self.signal(job, "retry", blocked=blocked)
        if job.row.state == "waiting":
            self._reopen_below(job)

    def _reopen_below(self, job: Job) -> None:
        opened = 0
        for child in self.children(job.row.id):
            if child.row.state in ("dead", "cancelled"):
                self._reopen(child, blocked=job.row.child_mode == "serial" and opened > 0)
                opened += 1
