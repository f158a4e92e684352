"""Rules of queues, set and obeyed: paused, serial and limited ones. Most databases have none of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from ..core import check
from ..core.machine import SECOND
from ..core.model import Claim
from ..env import failpoint
from ..errors import NotFound
from ..store.ready import Lane
from ..store.store import Store
from .again import repeated
from .sealing import writing


class Lanes:
    """Which pending jobs may be claimed now. Lock order: these queues' rows come before any job's."""

    def __init__(self, store: Store, now: int, has_rules: bool) -> None:
        self._store = store
        self._paused: set[str] = set()
        self._owner: dict[str, int | None] = {}  # of serial queues
        self._room: dict[str, int] = {}  # of limited queues
        self._chosen: dict[int, int] = {}  # job → the root that gets the lane with it
        rules = store.ask("queue_rules", now=now) if has_rules else ()
        for name, paused, serial, owner, concurrency in rules:
            if paused:
                self._paused.add(name)
            elif serial:
                self._owner[name] = owner
            if concurrency is not None and not paused:
                self._room[name] = concurrency - store.value("running_in", queue=name)

    def of(self, pairs: Iterable[tuple[str, str]], places: dict[str, int]) -> list[Lane]:
        """Where to look, of these queues and kinds."""
        lanes = []
        for queue, kind in pairs:
            most = min(places[kind], self._room.get(queue, places[kind]))
            if queue in self._paused or most <= 0:
                continue
            owner = self._owner.get(queue)
            if owner is None:
                lanes.append(Lane(queue, kind, most, serial=queue in self._owner))
            else:
                lanes += (Lane(queue, kind, most, True, owner), Lane(queue, kind, most, True, 0))
        return lanes

    def is_paused(self, queue: str) -> bool:
        return queue in self._paused

    def bounded(self, queue: str, kind: str, waiting: int) -> int:
        """How many of the waiting jobs could be claimed now by somebody who has places for all of them."""
        if queue in self._paused:
            return 0
        most = min(waiting, max(0, self._room.get(queue, waiting)))
        if queue not in self._owner:
            return most
        owner, count = self._owner[queue], 0
        for _, _, _, lane in self._store.ready(self.of([(queue, kind)], {kind: waiting}), waiting):
            owner = owner or lane
            count += not lane or lane == owner
        return min(most, count)

    def admits(self, id: int, queue: str, lane: int | None) -> bool:
        """Whether the job may be claimed beside those admitted before it. The first of a free lane takes the lane."""
        if self._room.get(queue, 1) <= 0:
            return False
        if queue in self._owner and lane:
            owner = self._owner[queue]
            if owner is not None and owner != lane:
                return False
            self._owner[queue] = lane
            self._chosen[id] = lane
        if queue in self._room:
            self._room[queue] -= 1
        return True

    @property
    def plain(self) -> bool:
        """Whether every job that is found may be claimed."""
        return not self._owner and not self._room

    def taken(self, claims: Iterable[Claim]) -> None:
        """The lanes belong to the trees whose jobs were claimed."""
        if self._chosen:
            for claim in claims:
                if claim.id in self._chosen:
                    self._store.ask("own_lane", name=claim.queue, root=self._chosen[claim.id])


class QueueRules:
    """Pauses queues, and sets what holds for each of them."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock

    def pause(self, queue: str, for_s: float | None = None) -> None:
        """Nothing of that queue is claimed until it is resumed, or until the time is over."""
        if for_s is not None:
            check.check_delay(for_s)
        self._change_queue(
            "pause_queue", queue, resume_at=None if for_s is None else self._clock() + int(for_s * SECOND)
        )

    def resume(self, queue: str) -> None:
        self._change_queue("resume_queue", queue)

    @repeated
    def set_queue(
        self,
        queue: str,
        *,
        serial: bool | UnsetType = UNSET,
        concurrency: int | UnsetType | None = UNSET,
        max_depth: int | UnsetType = UNSET,
    ) -> None:
        """The queue has these rules from now on; ``concurrency=None``: no limit. Depth holds for new trees."""
        check.check_queue(queue)
        check.check_limits(concurrency, max_depth)
        with writing(self._store, alone=True):  # nobody inserts by the old rules any more
            now = self._clock()
            self._store.ask("add_queue", name=queue, now=now)
            self._store.ask(
                "set_queue",
                name=queue,
                serial=None if serial is UNSET else int(bool(serial)),
                max_depth=None if max_depth is UNSET else max_depth,
                limits=concurrency is not UNSET,
                concurrency=None if concurrency is UNSET else concurrency,
            )
            if serial is not UNSET:
                self._relane(queue)
            self._store.event("queue_set", now=now, text=queue)
            failpoint("rules.before_commit")
        self._store.ring("pool")

    def _relane(self, queue: str) -> None:
        """Its live jobs stand in the lane, or in none; the oldest tree that has begun owns it."""
        ids = [row[0] for row in self._store.ask("live_in_queue", queue=queue)]
        self._store.ask("relane", ids=json.dumps(ids))
        self._store.ask("own_lane", name=queue, root=self._store.value("busy_root", queue=queue))

    @repeated
    def _change_queue(self, statement: str, queue: str, **params: Any) -> None:
        check.check_queue(queue)
        with writing(self._store):
            now = self._clock()
            if not any(name == queue for name, *_ in self._store.ask("queues")):
                if statement == "resume_queue":
                    raise NotFound(f"no queue {queue!r}; `covey queue list` shows what there is")
                self._store.ask("add_queue", name=queue, now=now)
            self._store.ask(statement, name=queue, **({"now": now} if params else {}), **params)
            self._store.event(statement.replace("_queue", "d"), now=now, text=queue)
            failpoint("pause.before_commit")
        self._store.ring("pool")
