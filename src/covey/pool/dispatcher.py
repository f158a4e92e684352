"""Claims go to workers: which worker gets which job, who waits a moment for one, what goes back to the queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol

from ..core.model import Claim, Kind
from ..log import Log
from .capacity import Prefetch, TypeCapacity
from .worker_process import Assignment, WorkerProcess
from .worker_types import Type, Types
from .workers import Workers

BOUND: tuple[Kind, ...] = ("command", "sync")
COLLECT_S = 0.002  # once all are handed out: between two looks at what workers have sent
WAITING_S = 0.050  # how long a claim may wait here for a worker before it goes back
PIECE = 25  # about a quarter of a millisecond: so long an answer may wait for us


class Host(Protocol):
    """What the pool does for us."""

    def takes_jobs(self) -> bool: ...

    def hand_back(self, claim: Claim) -> None: ...

    def look_soon(self) -> None: ...


class Dispatcher:
    """A pool's: every claim of it is with a worker, arrives just now, or waits a moment for a free worker."""

    def __init__(self, host: Host, workers: Workers, prefetch: Prefetch, types: Types, log: Log) -> None:
        self._host, self._types = host, types
        self._by_type = {type.name: TypeDispatcher(workers, prefetch, type, log) for type in types}
        self._waiting: list[tuple[float, Claim]] = []
        self.landing = Landing(self.assign)

    def __bool__(self) -> bool:
        return bool(self._waiting or self.landing)

    def assign(self, claims: Iterable[Claim]) -> None:
        """Each claim is in a worker's socket, waits a moment for a free worker, or is on its way back."""
        takes = self._host.takes_jobs()
        now = time.monotonic()
        claims = list(claims)
        busy = bool(claims or self._waiting)
        if claims and takes and not self._waiting:
            claims = claims[self._by_type[self._types.of(claims[0].queue)].send_run(claims) :]
        queue = [*self._waiting, *((now, claim) for claim in claims)]
        self._waiting = []
        waiting: set[str] = set()
        for since, claim in queue:
            type = self._types.of(claim.queue)
            # Nobody is put behind a running job while an earlier one waits, so that a worker becomes free for that.
            if takes and self._by_type[type].send(claim, behind=type not in waiting):
                continue
            if takes and now - since < WAITING_S:
                self._waiting.append((since, claim))
                waiting.add(type)
            else:
                self._host.hand_back(claim)
        if busy:
            self._host.look_soon()  # a new time-out may be the shortest

    def assign_waiting(self) -> None:
        """Those that wait for a worker may have one now; who has waited for too long goes back."""
        if self._waiting:
            self.assign(())

    def take_out(self, ids: Container[int]) -> list[Claim]:
        """Of those that wait for a worker these do so no longer."""
        found = [claim for _, claim in self._waiting if claim.id in ids]
        self._waiting = [(since, claim) for since, claim in self._waiting if claim.id not in ids]
        return found

    def drop(self) -> None:
        """None of the claims that are here is ours any more."""
        self._waiting.clear()
        self.landing.drop()

    def capacities(self) -> dict[str, TypeCapacity]:
        """What each type can hold with the workers that stand ready now."""
        return {name: each.capacity() for name, each in self._by_type.items()}


class TypeDispatcher:
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
        most = self._prefetch.of(first.kind, first.task)
        if most < 2 or first.kind != "sync" or self._working() < self._count:
            return 0
        workers = self._working_below(most, first)
        sent = 0
        task, kind, queue = first.task, first.kind, first.queue if self._type else None
        for claim in claims:
            if claim.task != task or claim.kind != kind or not workers or (queue and claim.queue != queue):
                break
            worker = min(workers, key=_load)
            self._serial += 1
            if not worker.send(Assignment(claim, self._serial, False)):
                break
            if self._tell:
                self._tell(claim, worker.name)
            sent += 1
            if len(worker.assignments) >= most or worker.retiring:
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

    def capacity(self) -> TypeCapacity:
        """What the type can hold with the workers that stand ready now.

        Whoever finishes its last job (its zygote is gone, it retires) counts too: that job is held, and would else
        take the place of one who is ready.
        """
        ready: dict[str, int] = {}
        for kind in self._workers.kinds_of(self._type):
            group = self._workers.groups[self._type, kind]
            ready[kind] = sum((kind in BOUND and bool(worker.assignments)) or worker.ready for worker in group)
        ahead = {kind: self._prefetch.ahead(kind) for kind in ("command", "sync")}
        return TypeCapacity(ready, self._count, ahead, self._workers.concurrency)

    def _choose(self, claim: Claim, behind: bool) -> WorkerProcess | None:
        """The least loaded worker of the kind that has room; beyond one job only where jobs are short."""
        best, load = None, 1 << 30
        for worker in self._workers.groups.get((self._type, claim.kind), ()):
            if len(worker.assignments) < load and worker.ready:
                best, load = worker, len(worker.assignments)
        most = self._prefetch.of(claim.kind, claim.task) if behind else 1
        if best is None or load >= max(best.places, most):
            return None
        if load == 0 and claim.kind != "async" and self._working() >= self._count:
            # Another worker may not start, but behind a short job of a working one there may be room.
            return min(self._working_below(most, claim), key=_load, default=None) if behind else None
        return best

    def _working_below(self, most: int, claim: Claim) -> list[WorkerProcess]:
        """Workers with fewer such jobs than that, but not without one."""
        return [worker for worker in self._workers.of(self._type, claim.kind) if 0 < len(worker.assignments) < most]

    def _working(self) -> int:
        """Workers that are bound to one job at a time and have one."""
        groups = self._workers.groups
        return sum(bool(worker.assignments) for kind in BOUND for worker in groups.get((self._type, kind), ()))


class Landing:
    """Claims that have arrived and are handed out while the store is already busy with the next turn.

    In the order of their arrival, piece by piece. None of them stays for longer than that one turn.
    """

    def __init__(self, assign: Callable[[Iterable[Claim]], None]) -> None:
        self._assign = assign
        self._claims: list[Claim] = []  # the next one last

    def __bool__(self) -> bool:
        return bool(self._claims)

    def put(self, claims: list[Claim], *, at_once: bool) -> None:
        """They are handed out piece by piece, or now; what was here before them is with the workers."""
        self.clear()
        if at_once:
            self._assign(claims)
        else:
            self._claims = claims[::-1]

    def hand_out(self) -> bool:
        """The next few are with the workers. False if there was none."""
        if not self._claims:
            return False
        self._some(PIECE)
        return True

    def clear(self) -> None:
        """All of them are with the workers."""
        self._some(len(self._claims))

    def drop(self) -> None:
        """They are not ours any more."""
        self._claims = []

    def _some(self, count: int) -> None:
        if self._claims:
            next_ones, self._claims = self._claims[-count:], self._claims[:-count]
            self._assign(reversed(next_ones))


def _load(worker: WorkerProcess) -> int:
    return len(worker.assignments)
