"""Which worker gets which job, and how many more the pool could hold."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.model import Claim, Kind
from ..log import Log
from .capacity import Prefetch
from .turn_loop import Offer
from .worker_process import Assignment, WorkerProcess
from .worker_types import Type
from .workers import Workers

BOUND: tuple[Kind, ...] = ("command", "sync")


class Dispatcher:
    """One worker type's."""

    def __init__(self, workers: Workers, prefetch: Prefetch, type: Type, log: Log) -> None:
        self._workers, self._prefetch, self._type, self._count = workers, prefetch, type.name, type.count
        self._tell = log.job_given if log.tells_jobs else None
        self._serial = 0

    def send_run(self, claims: Sequence[Claim]) -> int:
        """How many of these jobs are in workers' sockets: the short ones at the front, all of one task.

        What `send` would do for each, with everything that is the same for all of them looked up once.
        """
        first = claims[0]
        room = self._prefetch.of(first.kind, first.task)
        if room < 2 or first.kind != "sync" or self._working() < self._count:
            return 0
        workers = self._room_behind(first)
        sent = 0
        for claim in claims:
            if claim.task != first.task or claim.kind != first.kind or not workers:
                break
            if self._type and claim.queue != first.queue:
                break
            worker = min(workers, key=_load)
            self._serial += 1
            if not worker.send(Assignment(claim, self._serial, False)):
                break
            if self._tell:
                self._tell(claim, worker.name)
            sent += 1
            if len(worker.assignments) >= room or worker.retiring:
                workers.remove(worker)
        return sent

    def send(self, claim: Claim, *, behind: bool = True) -> bool:
        """The job is in a worker's socket; False if nobody has room for it. ``behind``: also behind a running job."""
        worker = self._choose(claim, behind)
        if worker is None:
            return False
        self._serial += 1
        live = claim.kind == "command" or not self._prefetch.is_short(claim.task)
        sent = worker.send(Assignment(claim, self._serial, live))
        if sent and self._tell:
            self._tell(claim, worker.name)
        return sent

    def offer(self) -> Offer:
        """What the pool can hold with the workers that stand ready now.

        Whoever finishes its last job (its zygote is gone, it retires) counts too: that job is held, and would else
        take the place of one who is ready.
        """
        ready: dict[str, int] = {}
        for kind in self._workers.kinds_of(self._type):
            lane = self._workers.groups[self._type, kind]
            ready[kind] = sum((kind in BOUND and bool(worker.assignments)) or worker.ready for worker in lane)
        ahead = {kind: self._prefetch.ahead(kind) for kind in ("command", "sync")}
        return Offer(ready, self._count, ahead, self._workers.concurrency)

    def _choose(self, claim: Claim, behind: bool) -> WorkerProcess | None:
        """The least loaded worker of the kind that has room; beyond one job only where jobs are short."""
        best, load = None, 1 << 30
        for worker in self._workers.groups.get((self._type, claim.kind), ()):
            if len(worker.assignments) < load and worker.ready:
                best, load = worker, len(worker.assignments)
        room = self._prefetch.of(claim.kind, claim.task) if behind else 1
        if best is None or load >= max(best.places, room):
            return None
        if load == 0 and claim.kind != "async" and self._working() >= self._count:
            # Another worker may not start, but behind a short job of a working one there may be room.
            return min(self._room_behind(claim), key=_load, default=None) if behind else None
        return best

    def _room_behind(self, claim: Claim) -> list[WorkerProcess]:
        """Workers with a job that may hold another such job."""
        room = self._prefetch.of(claim.kind, claim.task)
        return [worker for worker in self._workers.of(self._type, claim.kind) if 0 < len(worker.assignments) < room]

    def _working(self) -> int:
        """Workers that are bound to one job at a time and have one."""
        groups = self._workers.groups
        return sum(bool(worker.assignments) for kind in BOUND for worker in groups.get((self._type, kind), ()))


def _load(worker: WorkerProcess) -> int:
    return len(worker.assignments)
