"""The workers of a pool: started in parallel with a limit, replaced when they die, counted by type and kind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct, structs

from ..core.model import Kind
from ..core.turn import WorkerState
from ..env import start_ticks
from ..log import Log
from ..system import process_tree
from ..worker import messages
from .worker_process import Member
from .worker_types import Type
from .zygote_process import Nursery

REPORT_IN_S = 10.0
SHORT_LIFE_S = 1.0
WITHOUT_S = 1.0  # until one is tried again for whom there were no descriptors
BACKOFF_S = (0.1, 5.0)
GIVE_UP = 8  # lives in a row too short to do a single job: the kind cannot start
MOST_FALLEN = 16  # workers that could not start and are still shown, per type and kind

Note = Callable[[str, str | None, str | None], None]  # what happened, to which worker, more of it
Lane = tuple[str, Kind]


class Wanted(Struct, frozen=True):
    """A worker that is to be started, not before ``at``."""

    at: float
    type: Type
    kind: Kind
    first: bool = False


class Crew:
    """Members by name; who is wanted, who is coming, who is there."""

    def __init__(
        self, log: Log, note: Note, *, limit: int, concurrency: int, max_jobs: int | None = None, label: str = ""
    ) -> None:
        self._label = label  # what follows a worker's name in reports about it
        self._log, self._note, self._limit, self._max_jobs = log, note, limit, max_jobs
        self.concurrency = concurrency
        self.lanes: dict[Lane, list[Member]] = {}
        self.members: dict[str, Member] = {}
        self.given_up: dict[str, str] = {}  # what people call it → why it cannot start
        self.nobody = False  # not one of those that the pool starts with could
        self._wanted: deque[Wanted] = deque()
        self._types: dict[str, Type] = {}
        self._closed: set[Lane] = set()  # given up
        self._short_lives: dict[Lane, int] = {}
        self._serial: dict[str, int] = {}
        self._by_pid: dict[int, Member] = {}
        self._fallen: dict[Lane, deque[WorkerState]] = {}
        self._asked = self._outstanding = 0  # of those that the pool starts with: in all, not yet there nor failed
        self._failures: list[str] = []
        self._began = time.monotonic()

    # ── who is wanted ───────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, types: dict[Type, dict[Kind, int]]) -> None:
        """That many of each type and kind are on their way."""
        for type, kinds in types.items():
            self._types[type.name] = type
            for kind, count in kinds.items():
                self.lanes[type.name, kind] = []
                self._asked += count
                self._wanted.extend([Wanted(0.0, type, kind, first=True)] * count)
        self._outstanding = self._asked

    def want_again(self, member: Member, *, after_s: float = 0.0, first: bool = False) -> None:
        self._wanted.append(Wanted(time.monotonic() + after_s, self._types[member.type], member.kind, first))

    def coming(self) -> bool:
        return bool(self._wanted) or self._starting() > 0

    def jobs(self) -> list[int]:
        """What the workers have, running or not."""
        return sorted(flight.claim.id for member in self.members.values() for flight in member.flights.values())

    def kinds_of(self, type: str) -> list[Kind]:
        """Kinds that the type can do."""
        return [kind for name, kind in self.lanes if name == type and (name, kind) not in self._closed]

    def _starting(self) -> int:
        return sum(member.state == "starting" for member in self.members.values())

    def start_more(self, nursery: Nursery, joined: Callable[[Member], None]) -> float | None:
        """As many as the limit allows are on their way. When to come back, if somebody has to wait for later."""
        now = time.monotonic()
        starting = self._starting()
        later = None
        for _ in range(len(self._wanted)):
            wanted = self._wanted.popleft()
            if wanted.at > now or starting >= self._limit:
                self._wanted.append(wanted)
                later = min(later or wanted.at, wanted.at) if wanted.at > now else later
                continue
            if (wanted.type.name, wanted.kind) in self._closed:
                continue
            try:
                self._start(nursery, wanted, joined)
            except OSError as error:  # the system has no more descriptors for us; it may have some later
                self._log.no_worker(error)
                self._wanted.append(structs.replace(wanted, at=now + WITHOUT_S))
                later = min(later or now + WITHOUT_S, now + WITHOUT_S)
                continue
            starting += 1
        return later

    def _start(self, nursery: Nursery, wanted: Wanted, joined: Callable[[Member], None]) -> None:
        kind, type = wanted.kind, wanted.type.name
        number = self._serial[type or kind] = self._serial.get(type or kind, 0) + 1
        places = self.concurrency if kind == "async" else 1
        member = Member(f"{type or kind}-{number}", type, kind, places, max_jobs=self._max_jobs)
        member.first, member.label = wanted.first, member.name + self._label
        self.members[member.name] = member
        self.lanes[type, kind].append(member)
        self._note("starting", member.name, None)
        # If the zygote is gone, its end is noticed, and who it was to bear is wanted anew.
        with contextlib.suppress(OSError):
            nursery.fork(member.name, kind, member.places, member.descriptors())
        member.sent()
        joined(member)

    # ── who is there ────────────────────────────────────────────────────────────────────────────────────────────────

    def born(self, told: messages.Forked) -> Member | None:
        """Whose birth that was."""
        if member := self.members.get(told.name):
            member.born(told.pid, told.ticks)
            self._by_pid[told.pid] = member
            self._note("registered", member.name, f"pid {told.pid}")
        return member

    def by_pid(self, pid: int) -> Member | None:
        return self._by_pid.get(pid)

    def ready(self, member: Member) -> None:
        member.state, member.served = "ready", True
        self._note("ready", member.name, None)
        if fallen := self._fallen.get((member.type, member.kind)):
            fallen.popleft()  # somebody stands in its place
        if member.first:
            self._outstanding -= 1
            self._log.worker_started(member.name, self._ready(), self._asked)
            self._announce()

    def of(self, type: str, kind: Kind) -> list[Member]:
        return [member for member in self.lanes.get((type, kind), ()) if member.ready]

    def _ready(self) -> int:
        return sum(member.state == "ready" for member in self.members.values())

    def overdue(self) -> list[Member]:
        """Workers that were born and have not reported in."""
        if not self._starting():
            return []
        limit = time.monotonic() - REPORT_IN_S
        starting = [member for member in self.members.values() if member.state == "starting" and member.pid is not None]
        return [member for member in starting if member.began < limit]

    def views(self, now_ns: int, wall: int, *, memory: bool) -> list[WorkerState]:
        """As people see them: everybody who is there, and who could not start."""
        seen = [member.view(now_ns, wall, memory=memory) for member in self.members.values()]
        return seen + [each for fallen in self._fallen.values() for each in fallen]

    # ── who is gone ─────────────────────────────────────────────────────────────────────────────────────────────────

    def bury(self, member: Member, how: str) -> None:
        """The member is no more; another one is wanted in its place, the later the more often they die young."""
        lane: Lane = (member.type, member.kind)
        if member.orphan and not member.served:  # its zygote's fault
            self.forget(member)
            self.want_again(member, first=member.first)
            return
        fallen = not member.served
        if fallen:
            self._fall(member, how)
        elif member.retiring:
            self._note("recycled", member.name, f"{member.retiring}; {member.done} jobs")
        else:
            self._note("killed" if member.doomed else "failed", member.name, member.error or how)
        self.forget(member)
        # A start may take long to fail; it is a short life all the same.
        young = fallen or (time.monotonic() - member.began < SHORT_LIFE_S and not member.done)
        lives = self._short_lives[lane] = self._short_lives.get(lane, 0) + 1 if young else 0
        if fallen and lives >= GIVE_UP:
            self._give_up(lane, member.error or how)
        else:
            delay_s = 0.0 if lives < 2 else min(BACKOFF_S[0] * 2 ** (lives - 2), BACKOFF_S[1])
            self.want_again(member, after_s=delay_s)

    def forget(self, member: Member) -> None:
        """Nothing of it is left here."""
        self.members.pop(member.name, None)
        self.lanes[member.type, member.kind].remove(member)
        if member.pid is not None:
            self._by_pid.pop(member.pid, None)
        member.close()

    def _fall(self, member: Member, how: str) -> None:
        """It could not start: said at once or with the others, and shown until another one stands in its place."""
        member.error = member.error or how
        member.state = "broken"
        where = f"; log: {self._log.path}" if self._log.path else ""
        self._note("failed", member.name, f"{member.error}{where}")
        fallen = self._fallen.setdefault((member.type, member.kind), deque(maxlen=MOST_FALLEN))
        fallen.append(member.view(time.monotonic_ns(), time.time_ns() // 1000, memory=False))
        if member.first:
            self._outstanding -= 1
            self._failures.append(f"{member.name} ({member.error})")
            self._announce()

    def _give_up(self, lane: Lane, why: str) -> None:
        if lane not in self._closed:
            self._closed.add(lane)
            title = self._types[lane[0]].title(lane[1])
            self.given_up[title] = why
            self._note("given_up", None, f"{title}: {why}")
            self._log.given_up(title, why)

    def _announce(self) -> None:
        """How the start-up went has been said, once; without anybody there is nothing to go on for."""
        if self._outstanding == 0:
            self._outstanding = -1
            self.nobody = not self._ready()
            self._log.all_started(self._ready(), self._asked, time.monotonic() - self._began, self._failures)

    def orphan_all(self) -> None:
        """The zygote is gone: its workers finish what they run, then they are replaced."""
        for member in self.members.values():
            member.orphan = True
        self.end_strangers(set())

    def end_strangers(self, others: set[int]) -> None:
        """Children of ours that nobody asked for are what dead workers left behind; they are killed."""
        known = others | {member.pid for member in self.members.values()}
        deadline = time.monotonic() + 1.0
        while strangers := [p for p in process_tree.children(os.getpid()) if p not in known and start_ticks(p)]:
            for pid in strangers:  # one that forks meanwhile leaves us its child: look again
                process_tree.send([pid, *process_tree.descendants(pid)], signal.SIGKILL)
            if time.monotonic() > deadline:
                break
            time.sleep(0.0005)


def describe(status: int) -> str:
    """How a worker ended, from its wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
