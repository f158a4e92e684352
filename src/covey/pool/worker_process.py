"""One worker as its pool sees it: its sockets, its slot, and the jobs it has."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

from msgspec import Struct

from ..core.model import Claim, Kind
from ..core.turn import WorkerState
from ..env import start_ticks
from ..worker import messages
from ..worker import slot as slots
from ..worker.slot import Slot

ROOM = 1 << 20  # of a worker's socket: else about 200 small jobs fill it
SMALL = 768  # what a job of 200 bytes takes of it


class Assignment(Struct):
    """A claim that a worker has."""

    claim: Claim
    serial: int
    live: bool
    stop: str | None = None  # timeout, cancel or shutdown
    kill_at: float | None = None  # then the worker itself must go


def small_jobs() -> int:
    """How many fit into a worker's socket: the system may grant less room than we ask for."""
    end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with end, other:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        return end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // SMALL


class WorkerProcess:
    def __init__(self, name: str, type: str, kind: Kind, places: int, *, max_jobs: int | None = None) -> None:
        self.name, self.type, self.kind, self.places = name, type, kind, places
        self.label = name  # as it signs its reports
        self.left = max_jobs  # jobs that it may still be given; None: any number
        self.state = "starting"
        self.served = False  # it was ready once
        self.pid: int | None = None
        self.ticks = 0
        self.handle: int | None = None
        self.assignments: dict[int, Assignment] = {}
        self.buffer = bytearray()
        self.done = self.failed = 0
        self.began = time.monotonic()
        self.started_at = time.time_ns() // 1000
        self.error: str | None = None
        self.first = False  # one of those that the pool starts with
        self.retiring: str | None = None  # it gets nothing more and ends when it has finished: why
        self.orphan = False  # its zygote is gone: nobody will tell us of its end
        self.doomed = False  # we are killing it
        self.heard_at = 0.0  # its last sign of life, or when it was given something after that
        self.idle_until = 0.0  # it took nothing of what it was given: others are preferred until then
        self.jobs, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.jobs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        self.jobs.setblocking(False)
        self.reports, self._far_reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.reports.setblocking(False)
        self._slot_fd = slots.create(places)
        self.slot = Slot(self._slot_fd, places)

    def descriptors(self) -> tuple[int, int, int]:
        """What the worker inherits. Of `far` we keep our copy, to take back what it has not received."""
        return self.far.fileno(), self._far_reports.fileno(), self._slot_fd

    def sent(self) -> None:
        """The worker has its ends; ours of those are closed."""
        self._far_reports.close()
        os.close(self._slot_fd)

    def born(self, pid: int, ticks: int) -> None:
        self.pid, self.ticks = pid, ticks
        self.began = time.monotonic()  # before, its zygote may have had to import the app
        with contextlib.suppress(ProcessLookupError):
            self.handle = os.pidfd_open(pid)
            if start_ticks(pid) != ticks:  # gone already, and the pid may be another's by now
                os.close(self.handle)
                self.handle = None

    @property
    def ready(self) -> bool:
        if self.state != "ready" or self.orphan or self.doomed or self.retiring:
            return False
        return not self.idle_until or time.monotonic() >= self.idle_until

    def send(self, assignment: Assignment) -> bool:
        """The job is in the worker's socket; False if that is full."""
        message = messages.encode(messages.RunJob(assignment.serial, assignment.live, assignment.claim))
        try:
            messages.send_job(self.jobs, message)
        except OSError:  # it is full, or the system has no more descriptors for what is on its way
            return False
        if not self.assignments or self.kind == "async":
            self.heard_at = time.monotonic()
        self.assignments[assignment.serial] = assignment
        if self.left is not None:
            self.left -= 1
            if not self.left:
                self.retire("it has done its number of jobs")
        return True

    def retire(self, why: str) -> None:
        """It gets nothing more; what it was given it may still do. Its end is an ordinary one."""
        self.retiring = why
        self.hang_up()

    def take_back(self) -> list[Claim]:
        """Jobs that were waiting in its socket. Whoever receives a message has the job: never both of us."""
        claims = []
        with contextlib.suppress(BlockingIOError):
            while (dispatch := messages.receive_job(self.far, messages.DONT_WAIT)) is not None:
                if self.assignments.pop(dispatch.serial, None):
                    claims.append(dispatch.claim)
                    self.left = None if self.left is None else self.left + 1
        return claims

    def read(self) -> list[messages.FromWorker]:
        """Whole messages that have arrived. Raises EOFError when the worker's end is closed and all is read."""
        ended = False
        try:
            while data := self.reports.recv(1 << 18):
                self.buffer += data
                if len(data) < 1 << 18:
                    break
            else:
                ended = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            ended = True
        self.heard_at = time.monotonic()
        heard = messages.unframe(self.buffer)
        if ended and not heard:
            raise EOFError
        return heard

    def breaks(self, last: messages.Broken) -> None:
        """It cannot go on, by its own word; where that could not be read, we see to it."""
        self.state, self.error = "broken", last.error
        if last.name == messages.GARBLED:
            self.signal(signal.SIGKILL)

    def stop(self, assignment: Assignment, place: int, why: str, grace_s: float, *, patience_s: float = 1.0) -> None:
        """The worker has been told to stop this one job; it is killed if that takes longer than the grace."""
        assignment.stop = why
        assignment.kill_at = time.monotonic() + grace_s + patience_s
        self.slot.ask_to_stop(place, assignment.serial, grace_s)
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        if self.handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, number)

    def hang_up(self) -> None:
        """The worker exits once it has finished what it runs."""
        self.jobs.close()

    def close(self) -> None:
        for end in (self.jobs, self.far, self.reports):
            end.close()
        self.slot.close()
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def memory(self) -> int | None:
        try:
            with open(f"/proc/{self.pid}/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return None

    def view(self, now_ns: int, wall: int, *, memory: bool) -> WorkerState:
        """As people see it. What has just begun is not worth a line yet."""
        job: int | None = None
        fence: int | None = None
        since: int | None = None
        for serial, (_, since_ns) in self.slot.running().items():
            assignment = self.assignments.get(serial)
            if assignment and now_ns - since_ns > 200_000_000:
                job, fence, since = assignment.claim.id, assignment.claim.fence, wall - (now_ns - since_ns) // 1000
                break
        states = {"starting": "starting", "broken": "dead"}
        leaving = self.doomed or self.orphan or self.retiring
        shown = states.get(self.state) or ("stopping" if leaving else "busy" if job else "idle")
        return WorkerState(
            self.name,
            self.kind,
            shown,  # type: ignore[arg-type]
            self.pid,
            self.ticks,
            self.started_at,
            queue=self.type or None,
            job_id=job,
            fence=fence,
            busy_since=since,
            done=self.done,
            failed=self.failed,
            memory=self.memory() if memory else None,
            error=self.error,
        )
