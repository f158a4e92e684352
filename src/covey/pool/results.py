"""What became of jobs, as reports that the next turn carries.

The worker says how a run has ended; the pool knows why it was stopped, or how its worker was lost.
"""

from __future__ import annotations

import signal

from ..core.model import Claim, Report
from ..system.cgroup import MemoryKills, memory_events
from ..worker import messages, output
from .capacity import Prefetch
from .worker_process import Assignment, WorkerProcess

NO_MEMORY = "out of memory"
KILLED = 128 + signal.SIGKILL  # the exit code of a command whose process was killed, its shell included


class Results:
    """Of one pool, until they are on their way to the queue."""

    def __init__(self, prefetch: Prefetch, live: str) -> None:
        self._prefetch, self._live = prefetch, live
        self.memory_kills = MemoryKills(memory_events())
        self._unsent: list[Report] = []
        self.done = self.failed = 0

    def take(self) -> list[Report]:
        """All of them; whoever takes them sends them."""
        reports, self._unsent = self._unsent, []
        return reports

    def drop(self) -> None:
        """Nobody wants to know: the pool was given up."""
        self._unsent.clear()

    def __len__(self) -> int:
        return len(self._unsent)

    def hand_back(self, claim: Claim) -> None:
        """The job has not started, and may start elsewhere."""
        self._unsent.append(Report(claim.id, claim.fence, "taken_back"))

    def cancelled(self, claim: Claim) -> None:
        """The job has not started, and no process of it is there."""
        self._unsent.append(Report(claim.id, claim.fence, "gone"))

    def job_done(self, worker: WorkerProcess, message: messages.JobDone) -> None:
        """The run has ended, as its worker says."""
        assignment = worker.assignments.pop(message.serial, None)
        if assignment is None:
            return
        report = message.report
        if report.started_at and report.finished_at:
            self._prefetch.note(worker.kind, assignment.claim.task, (report.finished_at - report.started_at) / 1e6)
        if assignment.stop:
            explain_stop(assignment, report)
        else:
            explain_killed_command(report, self.memory_kills)
        worker.done += 1
        if report.outcome in ("failure", "abort"):
            worker.failed += 1
            self.failed += 1
        elif report.outcome == "success":
            self.done += 1
        if assignment.live:
            output.drop_live(self._live, report.id, report.fence)
        self._unsent.append(report)

    def worker_lost(self, worker: WorkerProcess, how: str) -> None:
        """Exactly what had started is charged for it; the rest goes back as if nothing had been."""
        running = worker.slot.running()
        for assignment in worker.assignments.values():
            report = lost_report(worker, assignment, how, self._live, started=assignment.serial in running)
            self.failed += report.outcome == "worker_lost"
            self._unsent.append(report)
        worker.assignments.clear()


def explain_stop(assignment: Assignment, report: Report) -> None:
    """The report says why the job was stopped; its worker only knows that it was told to."""
    if assignment.stop == "cancel":
        report.outcome = "gone"
    elif assignment.stop == "timeout" and report.outcome != "success":
        report.outcome = "failure"
        report.error = f"timed out after {assignment.claim.timeout_s:g} s"
        report.detail = None
    elif assignment.stop == "shutdown" and report.outcome == "failure":
        report.outcome = "stopped"  # whatever it made of our stop, it is not the job's fault


def lost_report(worker: WorkerProcess, assignment: Assignment, how: str, live: str, *, started: bool) -> Report:
    """What a lost worker means for one of its jobs: exactly what had started is charged for it."""
    claim = assignment.claim
    report = Report(claim.id, claim.fence, "taken_back")
    if started:
        report.outcome, report.worker = "worker_lost", worker.label
        report.error = f"worker lost: {worker.name} {how}{f' ({worker.error})' if worker.error else ''}"
        report.output = output.salvage(live, claim.id, claim.fence) if assignment.live else None
        if assignment.stop:
            report.outcome = "stopped"
            explain_stop(assignment, report)
        elif worker.doomed:
            report.outcome = "stopped"  # a bystander of a kill that was meant for another
    if assignment.live:
        output.drop_live(live, claim.id, claim.fence)
    return report


def explain_kill(how: str, kills: MemoryKills) -> str:
    """How a worker was lost, with the reason if it was killed for lack of memory."""
    return f"{how}: {NO_MEMORY}" if how.endswith("SIGKILL") and kills.explains() else how


def explain_killed_command(report: Report, kills: MemoryKills) -> None:
    """The report of a command that was killed for lack of memory says so."""
    if report.outcome == "failure" and report.exit_code == KILLED and kills.explains():
        report.error = f"{report.error}: {NO_MEMORY}"
