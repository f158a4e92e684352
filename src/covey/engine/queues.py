"""Which pending jobs may be claimed now: paused, serial and limited queues. Most databases have none of them."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.model import Claim
from ..store.ready import Lane
from ..store.store import Store


class Lanes:
    """The rules of one claim. Lock order: these queues' rows come before any job's."""

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
