"""Looks after running jobs: time-outs, cancels, workers that stall or do not stop. And knows when to look again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from ..core.model import Claim
from ..log import Log
from ..worker import output
from .capacity import AHEAD_S, Prefetch
from .worker_process import Assignment, WorkerProcess
from .workers import Workers

LOOK_S = 0.010  # how soon a job that has not been seen running is looked for
STALLED_S = 1.0  # a worker that has not begun what it was given for so long is passed over
PASSED_OVER_S = 1.0
STOP_GRACE_S = 5.0  # TERM to KILL, for time-outs and cancels


class Lookout:
    def __init__(
        self,
        workers: Workers,
        prefetch: Prefetch,
        log: Log,
        *,
        live: str,
        place: Callable[[Iterable[Claim]], None],
        offer: Callable[[], None],
    ) -> None:
        self._workers, self._prefetch, self._log, self._live = workers, prefetch, log, live
        self._place, self._offer = place, offer
        self.at = 0.0  # when to look again; 0: there is nothing to see
        self.cancels: set[tuple[int, int]] = set()  # (job, fence) that shall end as soon as they are seen

    def look_by(self, at: float) -> None:
        """The next look comes no later than that."""
        if not self.at or at < self.at:
            self.at = at

    def look(self, now: float) -> None:
        """Everything that was due has been done."""
        now_ns, soonest = time.monotonic_ns(), float("inf")
        self.at = 0.0
        self._place(())
        for worker in list(self._workers.by_name.values()):
            soonest = min(soonest, self._look_at(worker, now, now_ns))
        if soonest != float("inf"):
            self.look_by(now + soonest)

    def _look_at(self, worker: WorkerProcess, now: float, now_ns: int) -> float:
        """Seconds until this worker must be looked at again."""
        if worker.idle_until and now >= worker.idle_until:
            worker.idle_until = 0.0
            self._offer()
        if not worker.assignments:
            return float("inf")
        soonest = float("inf")
        running = worker.slot.running()
        for serial, (place, since_ns) in running.items():
            if assignment := worker.assignments.get(serial):
                soonest = min(
                    soonest, self._check_assignment(worker, assignment, place, (now_ns - since_ns) / 1e9, now)
                )
        if worker.kind != "async" and len(worker.assignments) > 1:
            self._relieve(worker, running, now_ns)
        if len(worker.assignments) > len(running):
            stalled = not running or worker.kind == "async"  # else it is at work, and `_relieve` looks after it
            if stalled and now - worker.heard_at > STALLED_S:
                return min(soonest, self._pass_over(worker, now))
            return min(soonest, LOOK_S)
        return soonest

    def _check_assignment(
        self, worker: WorkerProcess, assignment: Assignment, place: int, elapsed: float, now: float
    ) -> float:
        """Seconds until it must be looked at again."""
        claim = assignment.claim
        if elapsed > AHEAD_S:
            self._prefetch.note_at_least(claim.kind, claim.task, elapsed)
        if worker.kind == "sync" and worker.pid is not None:
            output.hollow_out(self._live, worker.pid)
        if assignment.kill_at is not None:
            if now >= assignment.kill_at and not worker.doomed:
                worker.doomed = True
                worker.signal(signal.SIGKILL)
            return max(LOOK_S, assignment.kill_at - now)
        if (claim.id, claim.fence) in self.cancels:
            worker.stop(assignment, place, "cancel", STOP_GRACE_S)
            return LOOK_S
        if claim.timeout_s is None:
            return 1.0
        if elapsed >= claim.timeout_s:
            self._log.timed_out(claim.id, claim.timeout_s)
            worker.stop(assignment, place, "timeout", STOP_GRACE_S)
            return LOOK_S
        return min(1.0, claim.timeout_s - elapsed)

    def _relieve(self, worker: WorkerProcess, running: dict[int, tuple[int, int]], now_ns: int) -> None:
        """Nothing waits behind a stalled worker: what it has not received is taken back and placed anew."""
        if any(now_ns - since_ns > AHEAD_S * 1e9 for _, since_ns in running.values()):
            self._place(worker.take_back())

    def _pass_over(self, worker: WorkerProcess, now: float) -> float:
        """A worker that takes nothing (frozen, starved) gets nothing for a while; what it was sent goes to others."""
        worker.idle_until = now + PASSED_OVER_S
        self._place(worker.take_back())
        self._offer()
        return PASSED_OVER_S
