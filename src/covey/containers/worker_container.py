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


class Berth:
    """A place for one container; whoever stands in it has a number of its own."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.state: State = "wanted"
        self.at = 0.0  # wanted: not before
        self.worker = self.container = ""
        self.began_at = self.started_at = 0.0
        self.first = True
        self.joined = False
        self.oom_at: float | None = None  # since when its engine says that memory has run out in it


class Berths:
    def __init__(self, groups: tuple[Group, ...], log: Log, note: Note, name: Callable[[str], str], limit: int) -> None:
        self._log, self._note, self._name, self._limit = log, note, name, limit
        self._berths = [Berth(group) for group in groups for _ in range(group.count)]
        self._asked = self._outstanding = len(self._berths)
        self._serial: dict[str, int] = {}
        self._short_lives: dict[str, int] = {}
        self._failures: list[str] = []
        self._began = time.monotonic()
        self.nobody = False  # not one of those that the pool starts with could, or none can any more

    def __iter__(self) -> Iterator[Berth]:
        return iter(list(self._berths))

    def __len__(self) -> int:
        return len(self._berths)

    def among(self, *states: State) -> list[Berth]:
        return [berth for berth in self._berths if berth.state in states]

    def by_container(self) -> dict[str, Berth]:
        return {berth.container: berth for berth in self._berths if berth.state != "wanted"}

    def next_at(self) -> float | None:
        """When somebody who has to wait may be started."""
        if len(self.among("starting", "joining")) >= self._limit:
            return None
        return min((berth.at for berth in self.among("wanted")), default=None)

    def start_more(self, start: Callable[[Berth], None]) -> None:
        """As many as the limit allows are on their way."""
        now = time.monotonic()
        free = self._limit - len(self.among("starting", "joining"))
        for berth in [berth for berth in self.among("wanted") if berth.at <= now][: max(0, free)]:
            title = berth.group.title
            number = self._serial[title] = self._serial.get(title, 0) + 1
            berth.worker = f"{title}-{number}"
            berth.container = self._name(berth.worker)
            berth.state, berth.began_at, berth.joined = "starting", now, False
            berth.oom_at = None
            self._note("starting", berth.worker, None)
            start(berth)

    def started(self, berth: Berth) -> None:
        """Its container runs; now its pool has to join."""
        berth.state, berth.started_at = "joining", time.monotonic()
        self._note("registered", berth.worker, f"container {berth.container}")

    def joined(self, berth: Berth) -> None:
        berth.state, berth.joined = "ready", True
        self._note("ready", berth.worker, None)
        if berth.first:
            berth.first = False
            self._outstanding -= 1
            self._log.worker_started(berth.worker, len(self.among("ready")), self._asked)
            self._announce()

    def lost(self, berth: Berth, how: str) -> None:
        """Another container is wanted in its place, the later the more often they die young."""
        fallen = not berth.joined
        self._note("failed", berth.worker, how)
        young = fallen or time.monotonic() - berth.began_at < SHORT_LIFE_S
        title = berth.group.title
        lives = self._short_lives[title] = self._short_lives.get(title, 0) + 1 if young else 0
        delay_s = 0.0 if lives < 2 else min(BACKOFF_S[0] * 2 ** (lives - 2), BACKOFF_S[1])
        given_up = fallen and lives >= GIVE_UP
        self._log.container_lost(berth.worker, how, None if given_up else delay_s)
        berth.state, berth.at = "wanted", time.monotonic() + delay_s
        if berth.first:
            berth.first = False
            self._outstanding -= 1
            self._failures.append(f"{berth.worker} ({how})")
            self._announce()
        if given_up:
            self._give_up(title, how)

    def left(self, berth: Berth, how: str) -> None:
        """It has ended as it should; nobody comes in its place."""
        if berth in self._berths:
            self._note("stopped", berth.worker, how)
            self._berths.remove(berth)

    def close(self) -> None:
        """Whoever only waits to be started is wanted no more."""
        self._berths = [berth for berth in self._berths if berth.state != "wanted"]

    def _give_up(self, title: str, why: str) -> None:
        """Those of the group that run go on."""
        self._berths = [b for b in self._berths if b.group.title != title or b.state != "wanted"]
        self._note("given_up", None, f"{title}: {why}")
        self._log.given_up(title, why)
        self.nobody = self.nobody or not self._berths

    def _announce(self) -> None:
        """How the start-up went has been said, once; without anybody there is nothing to go on for."""
        if self._outstanding == 0:
            self._outstanding = -1
            ready = len(self.among("ready"))
            self.nobody = not ready
            self._log.all_started(ready, self._asked, time.monotonic() - self._began, self._failures)
