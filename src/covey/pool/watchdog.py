"""Looks after running jobs and their workers: time-outs, cancels, workers that stall, do not stop or grow too large."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from ..log import Log
from ..worker import output
from .capacity import AHEAD_S, Prefetch
from .dispatcher import Dispatcher
from .results import Results
from .worker_process import Assignment, WorkerProcess
from .workers import Workers

LOOK_S = 0.010  # how soon a job that has not been seen running is looked for
STALLED_S = 1.0  # a worker that has not begun what it was given for so long is passed over
PASSED_OVER_S = 1.0
MEMORY_S = 1.0  # between two looks at how large the workers are
STOP_GRACE_S = 5.0  # TERM to KILL, for time-outs and cancels
KILL_GRACE_S = 0.5  # the same when the pool itself is in a hurry


class Watchdog:
    def __init__(
        self,
        workers: Workers,
        prefetch: Prefetch,
        log: Log,
        dispatcher: Dispatcher,
        results: Results,
        *,
        live: str,
        resize: Callable[[], None],
        max_memory: int | None = None,
    ) -> None:
        self._workers, self._prefetch, self._log, self._live = workers, prefetch, log, live
        self._dispatcher, self._results, self._resize = dispatcher, results, resize
        self._max_memory, self.memory_at = max_memory, time.monotonic() + MEMORY_S if max_memory else None
        self.at = 0.0  # when to look again; 0: there is nothing to see
        self.cancels: set[tuple[int, int]] = set()  # (job, fence) that shall end as soon as they are seen

    def cancel(self, ids: set[int]) -> None:
        """Of the jobs that we hold these are being stopped, and no others; what has not started is simply dropped."""
        self._dispatcher.landing.clear()
        for claim in self._dispatcher.take_out(ids):
            self._results.cancelled(claim)
        self.cancels = {run for run in self.cancels if run[0] in ids}
        for worker in self._workers.by_name.values() if ids else ():
            self._cancel_in(worker, ids)

    def _cancel_in(self, worker: WorkerProcess, ids: set[int]) -> None:
        """Those of its jobs end as soon as they are seen to run; what the worker has not received is not sent again."""
        wanted = {each.serial for each in worker.assignments.values() if each.claim.id in ids and not each.stop}
        if not wanted:
            return
        if worker.kind != "async" and len(worker.assignments) > 1:
            self._drop_unreceived(worker, ids)
        left = [each.claim for each in worker.assignments.values() if each.serial in wanted]
        self.cancels |= {(claim.id, claim.fence) for claim in left}
        self.at = time.monotonic()

    def _drop_unreceived(self, worker: WorkerProcess, ids: set[int]) -> None:
        """Those of the jobs that lie in its socket are done with; the others are sent anew."""
        back = worker.take_back()
        for claim in back:
            if claim.id in ids:
                self._results.cancelled(claim)
        self._dispatcher.assign(claim for claim in back if claim.id not in ids)

    def look_by(self, at: float) -> None:
        """The next look comes no later than that."""
        if not self.at or at < self.at:
            self.at = at

    def look(self, now: float) -> None:
        """Everything that was due has been done."""
        now_ns, soonest = time.monotonic_ns(), float("inf")
        self.at = 0.0
        self._dispatcher.assign_waiting()
        for worker in list(self._workers.by_name.values()):
            soonest = min(soonest, self._look_at(worker, now, now_ns))
        if soonest != float("inf"):
            self.look_by(now + soonest)

    def _look_at(self, worker: WorkerProcess, now: float, now_ns: int) -> float:
        """Seconds until this worker must be looked at again."""
        if worker.idle_until and now >= worker.idle_until:
            worker.idle_until = 0.0
            self._resize()
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
            self._dispatcher.assign(worker.take_back())

    def _pass_over(self, worker: WorkerProcess, now: float) -> float:
        """A worker that takes nothing (frozen, starved) gets nothing for a while; what it was sent goes to others."""
        worker.idle_until = now + PASSED_OVER_S
        self._dispatcher.assign(worker.take_back())
        self._resize()
        return PASSED_OVER_S

    def stop_all(self) -> None:
        """The pool's time is up: what still runs is ended and will be handed back, at no cost to the jobs."""
        for worker in self._workers.by_name.values():
            places = {serial: place for serial, (place, _) in worker.slot.running().items()}
            for assignment in worker.assignments.values():
                if assignment.stop is None and assignment.serial in places:
                    worker.stop(assignment, places[assignment.serial], "shutdown", KILL_GRACE_S, patience_s=0.5)
                elif assignment.stop is None and not worker.doomed:  # received and never begun: it is frozen
                    worker.doomed = True
                    worker.signal(signal.SIGKILL)
        self.at = time.monotonic() + LOOK_S

    def kill_overdue(self) -> None:
        """Workers that were started and have not reported in for too long."""
        for worker in self._workers.overdue():
            worker.error = worker.error or "did not report in"
            worker.signal(signal.SIGKILL)

    def retire_large(self, now: float) -> None:
        """Workers above the limit of memory get nothing more, and end after what they run."""
        if self._max_memory is None or self.memory_at is None or now < self.memory_at:
            return
        self.memory_at = now + MEMORY_S
        for worker in [w for w in self._workers.by_name.values() if w.ready and (w.memory() or 0) > self._max_memory]:
            worker.retire(f"its memory was above {self._max_memory >> 20} MiB")
            self._dispatcher.assign(worker.take_back())
            self._resize()
