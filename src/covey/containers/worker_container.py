"""The places of a supervisor's containers: who is wanted, coming, there; who is replaced, and how soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

from ..log import Log
from ..pool.restart_policy import RestartPolicy, StartUp
from .launch import Group

SHORT_LIFE_S = 10.0  # from the start of a container: who dies sooner is replaced ever later
BACKOFF_S = (0.5, 30.0)

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
        self._start_up = StartUp(log)
        self._start_up.ask(len(self._workers))
        self._restarts = RestartPolicy(short_life_s=SHORT_LIFE_S, backoff_s=BACKOFF_S)
        self._serial: dict[str, int] = {}
        self._none_can = False  # all groups were given up: the image, or the server's address, is wrong

    def __iter__(self) -> Iterator[WorkerContainer]:
        return iter(list(self._workers))

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def nobody(self) -> bool:
        """Not one of those that the pool starts with could start, or none can any more."""
        return self._none_can or self._start_up.nobody

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
            self._start_up.succeeded(worker.name, len(self.among("ready")))

    def lost(self, worker: WorkerContainer, how: str) -> None:
        """Another container is wanted in its place, the later the more often they die young."""
        self._note("failed", worker.name, how)
        title, now = worker.group.title, time.monotonic()
        after_s = self._restarts.replace_after(title, now - worker.began_at, was_ready=worker.joined)
        self._log.container_lost(worker.name, how, after_s)
        worker.state, worker.at = "wanted", now + (after_s or 0.0)
        if worker.first:
            worker.first = False
            self._start_up.failed(worker.name, how, len(self.among("ready")))
        if after_s is None:
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
        self._none_can = not self._workers
