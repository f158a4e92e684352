"""A worker's place: where jobs arrive, where it marks what it runs, where reports leave."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import Any

from ..core.codec import clean
from ..core.model import Output, Report
from . import messages
from .slot import Slot

NAPS, NAP_S = 3, 0.0004
ANSWER_S = 5.0  # how long a task waits for what it asks of the queue: a turn or two, unless the store is out of reach


class PoolLink:
    def __init__(
        self,
        name: str,
        jobs: socket.socket,
        reports: socket.socket,
        slot: Slot,
        live: str,
        settings: dict[str, Any],
        *,
        label: str | None = None,
    ) -> None:
        self.name, self.jobs, self.reports, self.slot, self.live = name, jobs, reports, slot, live
        self._label = label or name  # as the queue's books have us
        self._pid = os.getpid()
        self._sending = threading.Lock()  # a task's threads may ask while another job's report leaves
        self._asking, self._asked = threading.Lock(), 0
        self.settings = settings  # what the queue was configured with when the pool registered: spawned jobs get it

    def ready(self) -> None:
        self.reports.sendall(messages.frame(messages.Ready(self.name)))

    def broken(self, error: str) -> None:
        self.reports.sendall(messages.frame(messages.Broken(self.name, error)))

    def receive(self) -> messages.RunJob | None:
        """The next job; None when the pool has hung up."""
        return messages.receive_job(self.jobs)

    def receive_now(self) -> messages.RunJob | None:
        """The same without waiting; BlockingIOError if there is none."""
        return messages.receive_job(self.jobs, messages.DONT_WAIT)

    def receive_soon(self) -> messages.RunJob | None:
        """The next job, for a worker in a stream of tiny ones: naps before it blocks.

        To wake a blocked process costs the sender ten times what sending costs (measured 16 against 1.6 µs), and a
        worker that is faster than its pool would block after every job.
        """
        for _ in range(NAPS):
            try:
                return messages.receive_job(self.jobs, messages.DONT_WAIT)
            except BlockingIOError:
                time.sleep(NAP_S)
        return messages.receive_job(self.jobs)

    def begin(self, place: int, serial: int) -> int:
        """From now on the job has started; the wall clock for people, in microseconds."""
        self.slot.start(place, serial, time.monotonic_ns())
        return time.time_ns() // 1000

    def end(self, place: int, serial: int, report: Report) -> None:
        """The report is with the kernel, then the mark goes: a crash in between counts the job as reported."""
        report.worker = self._label
        report.finished_at = time.time_ns() // 1000
        try:
            parts = messages.frame_parts(messages.JobDone(serial, report))
        except Exception as error:  # some value of the task's got into it; nobody else could ever tell of this job
            told = Report(report.id, report.fence, "failure", report.started_at, report.finished_at, self._label)
            told.error = clean(f"what became of it cannot be sent: {type(error).__name__}: {error}")[:1000]
            parts = messages.frame_parts(messages.JobDone(serial, told))
        with self._sending:
            for part in parts:
                self.reports.sendall(part)
        self.slot.clear(place)

    def ask(self, serial: int) -> bytes | None:
        """What the queue knows now, as JSON; None if that cannot be had in time, or by a child of this process."""
        deadline = time.monotonic() + ANSWER_S
        if os.getpid() != self._pid or not self._asking.acquire(timeout=ANSWER_S):
            return None
        try:
            self._asked += 1
            with self._sending:
                self.reports.sendall(messages.frame(messages.Ask(serial, self._asked)))
            heard = select.poll()
            heard.register(self.reports, select.POLLIN)
            while (left_s := deadline - time.monotonic()) > 0 and heard.poll(left_s * 1000):
                if (answer := messages.receive_answer(self.reports)) is None:
                    return None
                if answer[0] == self._asked:  # else it is a late one, to whoever was stopped while he waited
                    return answer[1]
            return None
        except BrokenPipeError:  # the pool is gone, and so are we in a moment
            return None
        finally:
            self._asking.release()


def report(job: messages.RunJob, outcome: str, started_at: int, output: Output | None = None) -> Report:
    claim = job.claim
    return Report(claim.id, claim.fence, outcome, started_at, output=output)  # type: ignore[arg-type]


def job_environment(base: dict[str, str], mark: str, job: messages.RunJob) -> dict[str, str]:
    """What a command sees: its job and its tree, never how to get into the queue."""
    claim = job.claim
    env = {name: value for name, value in base.items() if not name.startswith("COVEY_")}
    env["COVEY_RUN"] = f"{mark}:{claim.id}:{claim.fence}"
    env["COVEY_JOB_ID"] = str(claim.id)
    env["COVEY_ATTEMPT"] = str(claim.attempt)
    env["COVEY_MAX_ATTEMPTS"] = str(claim.max_attempts)
    env["COVEY_QUEUE"] = claim.queue
    env["COVEY_ROOT_ID"] = str(claim.root_id)
    env["COVEY_DEPTH"] = str(claim.depth)
    env["COVEY_MAX_DEPTH"] = str(claim.max_depth)
    if claim.parent_id is not None:
        env["COVEY_PARENT_ID"] = str(claim.parent_id)
    if claim.key is not None:
        env["COVEY_KEY"] = claim.key
    return env


def base_environment() -> dict[str, str]:
    return dict(os.environ)
