"""The workers of a pool: started in parallel with a limit, replaced when they die, counted by kind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable

from ..core.model import Kind
from ..log import Log
from ..worker import family, wire
from .forking import Nursery
from .member import Member

REPORT_IN_S = 10.0
SHORT_LIFE_S = 1.0
BACKOFF_S = (0.1, 5.0)
GIVE_UP = 8  # lives in a row too short to do a single job: the kind cannot start


class Crew:
    """Members by name; who is wanted, who is coming, who is there."""

    def __init__(self, log: Log, *, limit: int, concurrency: int) -> None:
        self._log, self._limit, self.concurrency = log, limit, concurrency
        self.by_kind: dict[str, list[Member]] = {}
        self.members: dict[str, Member] = {}
        self.failures: dict[str, str] = {}  # kind → why it cannot start
        self._wanted: deque[tuple[float, Kind]] = deque()
        self._short_lives: dict[str, int] = {}
        self._serial: dict[str, int] = {}
        self._by_pid: dict[int, Member] = {}
        self._asked = 0
        self._announced = False
        self._began = time.monotonic()

    def want(self, kind: Kind, count: int = 1, *, after_s: float = 0.0) -> None:
        self._wanted.extend([(time.monotonic() + after_s, kind)] * count)

    def coming(self) -> bool:
        return bool(self._wanted) or self._starting() > 0

    def _starting(self) -> int:
        return sum(member.state == "starting" for member in self.members.values())

    def start_more(self, nursery: Nursery, joined: Callable[[Member], None]) -> float | None:
        """As many as the limit allows are on their way. When to come back, if somebody has to wait for later."""
        now = time.monotonic()
        starting = self._starting()
        later = None
        for _ in range(len(self._wanted)):
            at, kind = self._wanted.popleft()
            if at > now or starting >= self._limit:
                self._wanted.append((at, kind))
                later = min(later or at, at) if at > now else later
                continue
            if kind in self.failures:
                continue
            starting += 1
            self._start(nursery, kind, joined)
        return later

    def _start(self, nursery: Nursery, kind: Kind, joined: Callable[[Member], None]) -> None:
        number = self._serial[kind] = self._serial.get(kind, 0) + 1
        member = Member(f"{kind}-{number}", kind, self.concurrency if kind == "async" else 1)
        self.members[member.name] = member
        self.by_kind.setdefault(kind, []).append(member)
        with contextlib.suppress(
            OSError
        ):  # the zygote is gone: its end is noticed, and who it was to bear is wanted anew
            nursery.fork(member.name, kind, member.places, member.descriptors())
        member.sent()
        joined(member)

    def born(self, told: wire.Forked) -> None:
        if member := self.members.get(told.name):
            member.born(told.pid, told.ticks)
            self._by_pid[told.pid] = member

    def by_pid(self, pid: int) -> Member | None:
        return self._by_pid.get(pid)

    def ready(self, member: Member) -> None:
        member.state = "ready"
        if not self._announced:
            self._log.worker_started(member.name, self._ready(), self._asked)

    def begin(self, kinds: dict[Kind, int]) -> None:
        """That many of each kind are on their way."""
        self._asked = sum(kinds.values())
        for kind, count in kinds.items():
            self.want(kind, count)

    def announce(self) -> None:
        """How the start-up went has been said, once."""
        if self._announced or self.coming():
            return
        self._announced = True
        failed = [f"{kind} ({why})" for kind, why in self.failures.items()]
        self._log.all_started(self._ready(), self._asked, time.monotonic() - self._began, failed)

    def _ready(self) -> int:
        return sum(member.state == "ready" for member in self.members.values())

    def overdue(self) -> list[Member]:
        """Workers that have not reported in."""
        if not self._starting():
            return []
        limit = time.monotonic() - REPORT_IN_S
        return [member for member in self.members.values() if member.state == "starting" and member.began < limit]

    def bury(self, member: Member, *, replace: bool) -> None:
        """The member is no more; another of its kind is wanted, the later the more often they die young."""
        self.members.pop(member.name, None)
        self.by_kind[member.kind].remove(member)
        if member.pid is not None:
            self._by_pid.pop(member.pid, None)
        member.close()
        if not replace:
            return
        young = time.monotonic() - member.began < SHORT_LIFE_S and not member.done
        lives = self._short_lives[member.kind] = self._short_lives.get(member.kind, 0) + 1 if young else 0
        if member.state != "ready" and lives >= GIVE_UP:
            if member.kind not in self.failures:
                self.failures[member.kind] = member.error or "workers die as soon as they start"
                self._log.kind_given_up(member.kind, self.failures[member.kind])
            return
        delay_s = 0.0 if lives < 2 else min(BACKOFF_S[0] * 2 ** (lives - 2), BACKOFF_S[1])
        self.want(member.kind, after_s=delay_s)

    def of(self, kind: str) -> list[Member]:
        return [member for member in self.by_kind.get(kind, ()) if member.ready]

    def orphan_all(self) -> None:
        """The zygote is gone: its workers finish what they run, then they are replaced."""
        for member in self.members.values():
            member.orphan = True
        self.end_strangers(None)

    def end_strangers(self, zygote: int | None) -> None:
        """Children of ours that nobody asked for are what dead workers left behind; they are killed."""
        known = {zygote, *(member.pid for member in self.members.values())}
        for pid in family.children(os.getpid()):
            if pid not in known:
                family.send([pid, *family.descendants(pid)], signal.SIGKILL)


def describe(status: int) -> str:
    """How a worker ended, from its wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
