"""What a run amounts to: the worker says how it ended, the pool knows why it was stopped or how its worker was lost."""

from __future__ import annotations

from ..core.model import Report
from ..worker import output
from .worker_process import Assignment, WorkerProcess


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
