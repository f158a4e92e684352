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
from .worker_process import WorkerProcess
from .worker_types import Type

REPORT_IN_S = 10.0
SHORT_LIFE_S = 1.0
WITHOUT_S = 1.0  # until one is tried again for whom there were no descriptors
BACKOFF_S = (0.1, 5.0)
GIVE_UP = 8  # lives in a row too short to do a single job: the kind cannot start
MOST_FALLEN = 16  # workers that could not start and are still shown, per type and kind

Note = Callable[[str, str | None, str | None], None]  # what happened, to which worker, more of it
WorkerGroup = tuple[str, Kind]  # worker type and kind
Fork = Callable[[str, str, int, tuple[int, int, int]], None]  # name, kind, places, descriptors


class Vacancy(Struct, frozen=True):
    """A worker that is to be started, not before ``at``."""

    at: float
    type: Type
    kind: Kind
    first: bool = False


class Workers:
    """Members by name; who is wanted, who is coming, who is there."""

    def __init__(
        self, log: Log, note: Note, *, limit: int, concurrency: int, max_jobs: int | None = None, label: str = ""
    ) -> None:
        self._label = label  # what follows a worker's name in reports about it
        self._log, self._note, self._limit, self._max_jobs = log, note, limit, max_jobs
        self.concurrency = concurrency
        self.groups: dict[WorkerGroup, list[WorkerProcess]] = {}
        self.by_name: dict[str, WorkerProcess] = {}
        self.given_up: dict[str, str] = {}  # what people call it → why it cannot start
        self.nobody = False  # not one of those that the pool starts with could
        self._wanted: deque[Vacancy] = deque()
        self._types: dict[str, Type] = {}
        self._closed: set[WorkerGroup] = set()  # given up
        self._short_lives: dict[WorkerGroup, int] = {}
        self._serial: dict[str, int] = {}
        self._by_pid: dict[int, WorkerProcess] = {}
        self._fallen: dict[WorkerGroup, deque[WorkerState]] = {}
        self._asked = self._outstanding = 0  # of those that the pool starts with: in all, not yet there nor failed
        self._failures: list[str] = []
        self._began = time.monotonic()

    # ── who is wanted ───────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, types: dict[Type, dict[Kind, int]]) -> None:
        """That many of each type and kind are on their way."""
        for type, kinds in types.items():
            self._types[type.name] = type
            for kind, count in kinds.items():
                self.groups[type.name, kind] = []
                self._asked += count
                self._wanted.extend([Vacancy(0.0, type, kind, first=True)] * count)
        self._outstanding = self._asked

    def want_again(self, worker: WorkerProcess, *, after_s: float = 0.0, first: bool = False) -> None:
        self._wanted.append(Vacancy(time.monotonic() + after_s, self._types[worker.type], worker.kind, first))

    def coming(self) -> bool:
        return bool(self._wanted) or self._starting() > 0

    def jobs(self) -> list[int]:
        """What the workers have, running or not."""
        return sorted(
            assignment.claim.id for worker in self.by_name.values() for assignment in worker.assignments.values()
        )

    def kinds_of(self, type: str) -> list[Kind]:
        """Kinds that the type can do."""
        return [kind for name, kind in self.groups if name == type and (name, kind) not in self._closed]

    def _starting(self) -> int:
        return sum(worker.state == "starting" for worker in self.by_name.values())

    def start_more(self, fork: Fork, joined: Callable[[WorkerProcess], None]) -> float | None:
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
                self._start(fork, wanted, joined)
            except OSError as error:  # the system has no more descriptors for us; it may have some later
                self._log.no_worker(error)
                self._wanted.append(structs.replace(wanted, at=now + WITHOUT_S))
                later = min(later or now + WITHOUT_S, now + WITHOUT_S)
                continue
            starting += 1
        return later

    def _start(self, fork: Fork, wanted: Vacancy, joined: Callable[[WorkerProcess], None]) -> None:
        kind, type = wanted.kind, wanted.type.name
        number = self._serial[type or kind] = self._serial.get(type or kind, 0) + 1
        places = self.concurrency if kind == "async" else 1
        worker = WorkerProcess(f"{type or kind}-{number}", type, kind, places, max_jobs=self._max_jobs)
        worker.first, worker.label = wanted.first, worker.name + self._label
        self.by_name[worker.name] = worker
        self.groups[type, kind].append(worker)
        self._note("starting", worker.name, None)
        # If the zygote is gone, its end is noticed, and whom it was to fork is wanted anew.
        with contextlib.suppress(OSError):
            fork(worker.name, kind, worker.places, worker.descriptors())
        worker.sent()
        joined(worker)

    # ── who is there ────────────────────────────────────────────────────────────────────────────────────────────────

    def born(self, told: messages.Forked) -> WorkerProcess | None:
        """The worker that was started."""
        if worker := self.by_name.get(told.name):
            worker.born(told.pid, told.ticks)
            self._by_pid[told.pid] = worker
            self._note("registered", worker.name, f"pid {told.pid}")
        return worker

    def by_pid(self, pid: int) -> WorkerProcess | None:
        return self._by_pid.get(pid)

    def ready(self, worker: WorkerProcess) -> None:
        worker.state, worker.served = "ready", True
        self._note("ready", worker.name, None)
        if fallen := self._fallen.get((worker.type, worker.kind)):
            fallen.popleft()  # somebody stands in its place
        if worker.first:
            self._outstanding -= 1
            self._log.worker_started(worker.name, self._ready(), self._asked)
            self._announce()

    def of(self, type: str, kind: Kind) -> list[WorkerProcess]:
        return [worker for worker in self.groups.get((type, kind), ()) if worker.ready]

    def _ready(self) -> int:
        return sum(worker.state == "ready" for worker in self.by_name.values())

    def overdue(self) -> list[WorkerProcess]:
        """Workers that were born and have not reported in."""
        if not self._starting():
            return []
        limit = time.monotonic() - REPORT_IN_S
        starting = [worker for worker in self.by_name.values() if worker.state == "starting" and worker.pid is not None]
        return [worker for worker in starting if worker.began < limit]

    def views(self, now_ns: int, wall: int, *, memory: bool) -> list[WorkerState]:
        """As people see them: everybody who is there, and who could not start."""
        seen = [worker.view(now_ns, wall, memory=memory) for worker in self.by_name.values()]
        return seen + [each for fallen in self._fallen.values() for each in fallen]

    # ── who is gone ─────────────────────────────────────────────────────────────────────────────────────────────────

    def bury(self, worker: WorkerProcess, how: str) -> None:
        """The worker is no more; another one is wanted in its place, the later the more often they die young."""
        lane: WorkerGroup = (worker.type, worker.kind)
        if worker.orphan and not worker.served:  # its zygote's fault
            self.forget(worker)
            self.want_again(worker, first=worker.first)
            return
        fallen = not worker.served
        if fallen:
            self._fall(worker, how)
        elif worker.retiring:
            self._note("recycled", worker.name, f"{worker.retiring}; {worker.done} jobs")
        else:
            self._note("killed" if worker.doomed else "failed", worker.name, worker.error or how)
        self.forget(worker)
        # A start may take long to fail; it is a short life all the same.
        young = fallen or (time.monotonic() - worker.began < SHORT_LIFE_S and not worker.done)
        lives = self._short_lives[lane] = self._short_lives.get(lane, 0) + 1 if young else 0
        if fallen and lives >= GIVE_UP:
            self._give_up(lane, worker.error or how)
        else:
            delay_s = 0.0 if lives < 2 else min(BACKOFF_S[0] * 2 ** (lives - 2), BACKOFF_S[1])
            self.want_again(worker, after_s=delay_s)

    def forget(self, worker: WorkerProcess) -> None:
        """Nothing of it is left here."""
        self.by_name.pop(worker.name, None)
        self.groups[worker.type, worker.kind].remove(worker)
        if worker.pid is not None:
            self._by_pid.pop(worker.pid, None)
        worker.close()

    def _fall(self, worker: WorkerProcess, how: str) -> None:
        """It could not start: said at once or with the others, and shown until another one stands in its place."""
        worker.error = worker.error or how
        worker.state = "broken"
        where = f"; log: {self._log.path}" if self._log.path else ""
        self._note("failed", worker.name, f"{worker.error}{where}")
        fallen = self._fallen.setdefault((worker.type, worker.kind), deque(maxlen=MOST_FALLEN))
        fallen.append(worker.view(time.monotonic_ns(), time.time_ns() // 1000, memory=False))
        if worker.first:
            self._outstanding -= 1
            self._failures.append(f"{worker.name} ({worker.error})")
            self._announce()

    def _give_up(self, lane: WorkerGroup, why: str) -> None:
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
        for worker in self.by_name.values():
            worker.orphan = True
        self.end_strangers(set())

    def end_strangers(self, others: set[int]) -> None:
        """Children of ours that nobody asked for are what dead workers left behind; they are killed."""
        known = others | {worker.pid for worker in self.by_name.values()}
        deadline = time.monotonic() + 1.0
        while strangers := [p for p in process_tree.children(os.getpid()) if p not in known and start_ticks(p)]:
            for pid in strangers:  # one that forks meanwhile leaves us its child: look again
                process_tree.send([pid, *process_tree.descendants(pid)], signal.SIGKILL)
            if time.monotonic() > deadline:
                break
            time.sleep(0.0005)
