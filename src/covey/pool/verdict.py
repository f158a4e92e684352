"""What a run amounts to: the worker says how it ended, the pool knows why it was stopped or how its worker was lost."""

from __future__ import annotations

from ..core.model import Report
from ..worker import output
from .worker_process import Flight, Member


def explain_stop(flight: Flight, report: Report) -> None:
    """The report says why the job was stopped; its worker only knows that it was told to."""
    if flight.stop == "cancel":
        report.outcome = "gone"
    elif flight.stop == "timeout" and report.outcome != "success":
        report.outcome = "failure"
        report.error = f"timed out after {flight.claim.timeout_s:g} s"
        report.detail = None
    elif flight.stop == "shutdown" and report.outcome == "failure":
        report.outcome = "stopped"  # whatever it made of our stop, it is not the job's fault


def lost_report(member: Member, flight: Flight, how: str, live: str, *, started: bool) -> Report:
    """What a lost worker means for one of its jobs: exactly what had started is charged for it."""
    claim = flight.claim
    report = Report(claim.id, claim.fence, "taken_back")
    if started:
        report.outcome, report.worker = "worker_lost", member.label
        report.error = f"worker lost: {member.name} {how}{f' ({member.error})' if member.error else ''}"
        report.output = output.salvage(live, claim.id, claim.fence) if flight.live else None
        if flight.stop:
            report.outcome = "stopped"
            explain_stop(flight, report)
        elif member.doomed:
            report.outcome = "stopped"  # a bystander of a kill that was meant for another
    if flight.live:
        output.drop_live(live, claim.id, claim.fence)
    return report
