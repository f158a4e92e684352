"""The places of a supervisor's containers: who is wanted, coming, there; who is replaced, and how soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

from ..log import Log
from .launch import Group

SHORT_LIFE_S = 10.0  # from the start of a container: who dies sooner is replaced ever later
BACKOFF_S = (0.5, 30.0)
GIVE_UP = 8  # containers in a row that never joined: the image, or the server's address, is wrong

State = Literal["wanted", "starting", "joining", "ready", "leaving"]
Note = Callable[[str, str | None, str | None], None]  # what happened, to which worker, more of it


class WorkerContainer:
    """A place for one container; whoever stands in it has a number of its own."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.state: State = "wanted"
        self.at = 0.0  # wanted: not before
        self.name = self.container = ""
        self.began_at = self.started_at = 0.0
        self.first = True
        self.joined = False
        self.oom_at: float | None = None  # since when its engine says that memory has run out in it


class WorkerContainers:
    def __init__(self, groups: tuple[Group, ...], log: Log, note: Note, name: Callable[[str], str], limit: int) -> None:
        self._log, self._note, self._name, self._limit = log, note, name, limit
        self._workers = [WorkerContainer(group) for group in groups for _ in range(group.count)]
        self._asked = self._outstanding = len(self._workers)
        self._serial: dict[str, int] = {}
        self._short_lives: dict[str, int] = {}
        self._failures: list[str] = []
        self._began = time.monotonic()
        self.nobody = False  # not one of those that the pool starts with could, or none can any more

    def __iter__(self) -> Iterator[WorkerContainer]:
        return iter(list(self._workers))

    def __len__(self) -> int:
        return len(self._workers)

    def among(self, *states: State) -> list[WorkerContainer]:
        return [worker for worker in self._workers if worker.state in states]

    def by_container(self) -> dict[str, WorkerContainer]:
        return {worker.container: worker for worker in self._workers if worker.state != "wanted"}

    def next_at(self) -> float | None:
        """When somebody who has to wait may be started."""
        if len(self.among("starting", "joining")) >= self._limit:
            return None
        return min((worker.at for worker in self.among("wanted")), default=None)

    def start_more(self, start: Callable[[WorkerContainer], None]) -> None:
        """As many as the limit allows are on their way."""
        now = time.monotonic()
        free = self._limit - len(self.among("starting", "joining"))
        for worker in [worker for worker in self.among("wanted") if worker.at <= now][: max(0, free)]:
            title = worker.group.title
            number = self._serial[title] = self._serial.get(title, 0) + 1
            worker.name = f"{title}-{number}"
            worker.container = self._name(worker.name)
            worker.state, worker.began_at, worker.joined = "starting", now, False
            worker.oom_at = None
            self._note("starting", worker.name, None)
            start(worker)

    def started(self, worker: WorkerContainer) -> None:
        """Its container runs; now its pool has to join."""
        worker.state, worker.started_at = "joining", time.monotonic()
        self._note("registered", worker.name, f"container {worker.container}")

    def joined(self, worker: WorkerContainer) -> None:
        worker.state, worker.joined = "ready", True
        self._note("ready", worker.name, None)
        if worker.first:
            worker.first = False
            self._outstanding -= 1
            self._log.worker_started(worker.name, len(self.among("ready")), self._asked)
            self._announce()

    def lost(self, worker: WorkerContainer, how: str) -> None:
        """Another container is wanted in its place, the later the more often they die young."""
        fallen = not worker.joined
        self._note("failed", worker.name, how)
        young = fallen or time.monotonic() - worker.began_at < SHORT_LIFE_S
        title = worker.group.title
        lives = self._short_lives[title] = self._short_lives.get(title, 0) + 1 if young else 0
        delay_s = 0.0 if lives < 2 else min(BACKOFF_S[0] * 2 ** (lives - 2), BACKOFF_S[1])
        given_up = fallen and lives >= GIVE_UP
        self._log.container_lost(worker.name, how, None if given_up else delay_s)
        worker.state, worker.at = "wanted", time.monotonic() + delay_s
        if worker.first:
            worker.first = False
            self._outstanding -= 1
            self._failures.append(f"{worker.name} ({how})")
            self._announce()
        if given_up:
            self._give_up(title, how)

    def left(self, worker: WorkerContainer, how: str) -> None:
        """It has ended as it should; nobody comes in its place."""
        if worker in self._workers:
            self._note("stopped", worker.name, how)
            self._workers.remove(worker)

    def close(self) -> None:
        """Whoever only waits to be started is wanted no more."""
        self._workers = [worker for worker in self._workers if worker.state != "wanted"]

    def _give_up(self, title: str, why: str) -> None:
        """Those of the group that run go on."""
        self._workers = [worker for worker in self._workers if worker.group.title != title or worker.state != "wanted"]
        self._note("given_up", None, f"{title}: {why}")
        self._log.given_up(title, why)
        self.nobody = self.nobody or not self._workers

    def _announce(self) -> None:
        """How the start-up went has been said, once; without anybody there is nothing to go on for."""
        if self._outstanding == 0:
            self._outstanding = -1
            ready = len(self.among("ready"))
            self.nobody = not ready
            self._log.all_started(ready, self._asked, time.monotonic() - self._began, self._failures)
