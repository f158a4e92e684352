"""What a pool holds, and how many more jobs of each kind it has room for. Values only: no thread, no lock, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from ..core.model import KINDS, Claim, Kind, Report
from ..core.turn import Capacity, Held, Turn
from .worker_types import Types

AHEAD_S = 0.020
MOST_AHEAD = {"sync": 500, "command": 4}  # a command costs a millisecond to start: a few hide the commit
OVERLAPPING = {"sync": 1000}
WEIGHT = 0.2
_QUEUE_AND_KIND = attrgetter("queue", "kind")


class TypeCapacity(Struct, frozen=True):
    """What a worker type can hold: who stands ready by kind, how many may work, how far ahead short jobs are taken."""

    ready: dict[str, int]
    count: int  # command and sync workers that may work at a time
    ahead: dict[str, int]  # jobs of one such worker
    places: int  # jobs of one async worker

    def total(self) -> int:
        return sum(ready * self.ahead.get(kind, 1) for kind, ready in self.ready.items())

    def left(self, queues: tuple[str, ...] | None, load: Mapping[str, int], root: int | None = None) -> Capacity:
        """How many more jobs of each kind, beside those that the type has already."""
        working = {kind: -(-load.get(kind, 0) // ahead) for kind, ahead in self.ahead.items()}
        free: dict[str, int] = {}
        for kind, ready in self.ready.items():
            if kind == "async":
                places = ready * self.places
            else:
                others = sum(working.values()) - working[kind]
                places = min(ready, max(0, self.count - others)) * self.ahead[kind]
            free[kind] = max(0, places - load.get(kind, 0))
        bound = max((free.get(kind, 0) for kind in self.ahead), default=0)
        idle = sum(working.values()) < self.count
        return Capacity(queues, free, bound + free.get("async", 0), idle=idle, bound=bound, root=root)


class Ledger:
    """The jobs that a pool holds, by worker type and kind: claims and reports in, out how many more it has room for."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._held: dict[int, tuple[int, str, str]] = {}  # job → fence, kind, worker type
        self._load: dict[str, dict[str, int]] = {type.name: {} for type in types}  # how many of those
        self._capacities: dict[str, TypeCapacity] = {}  # by worker type; none while the pool stops
        # Types whose places the last turn could not fill: claiming for them is pointless until something rings.
        self._empty: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def resize(self, capacities: dict[str, TypeCapacity]) -> bool:
        """From now on each type can hold so much; one that is not named takes nothing more. Whether one has grown."""
        if capacities == self._capacities:
            return False
        before, self._capacities = self._capacities, capacities
        grown = {name for name, each in capacities.items() if name not in before or each.total() > before[name].total()}
        self._empty -= grown
        return bool(grown)

    def left(self, reports: Iterable[Report] = ()) -> list[Capacity]:
        """How many more jobs each type can take, once these reports have been heard."""
        return [each for _, each in self._left(reports)]

    def is_worth_a_turn(self) -> bool:
        """Some type has room, and may find something to fill it with."""
        return any(each.limit > 0 for name, each in self._left(()) if name not in self._empty)

    def held(self, without: Iterable[Report] = ()) -> list[Held]:
        """Everything that we know we hold, but for what these reports end."""
        ended = {(report.id, report.fence) for report in without}
        return [Held(id, fence) for id, (fence, *_) in self._held.items() if (id, fence) not in ended]

    def settle(self, turn: Turn, claims: list[Claim]) -> None:
        """The turn was answered with these claims: what it reported is not ours any more, what was claimed is."""
        self.end(turn.reports)
        claimed = self.take(claims)
        limits = {self._types.serving(want.queues): want.limit for want in turn.wants}
        self._empty = {name for name, limit in limits.items() if claimed.get(name, 0) < limit}

    def end(self, reports: list[Report]) -> None:
        held, load = self._held, self._load
        for report in reports:
            if (found := held.get(report.id)) and found[0] == report.fence:
                del held[report.id]
                load[found[2]][found[1]] -= 1

    def take(self, claims: list[Claim]) -> dict[str, int]:
        """The pool holds these too; how many each type got. Those of one queue and kind that follow each other are
        counted together: a stream is one run for the most part."""
        taken: dict[str, int] = {}
        for (queue, kind), run in groupby(claims, key=_QUEUE_AND_KIND):
            type = self._types.of(queue)
            found = [(claim.id, (claim.fence, kind, type)) for claim in run]
            taken[type] = taken.get(type, 0) + len(found)
            self._load[type][kind] = self._load[type].get(kind, 0) + len(found)
            self._held.update(found)
        return taken

    def forget(self) -> None:
        """The pool was given up: nothing of what it held is its own."""
        self._held.clear()
        for load in self._load.values():
            load.clear()

    def look_again(self) -> None:
        """Any queue may have something by now."""
        self._empty.clear()

    def _left(self, reports: Iterable[Report]) -> list[tuple[str, Capacity]]:
        load = {name: dict(kinds) for name, kinds in self._load.items()}
        for report in reports:
            if (found := self._held.get(report.id)) and found[0] == report.fence:
                load[found[2]][found[1]] -= 1
        return [
            (type.name, self._capacities[type.name].left(type.queues, load[type.name], type.root))
            for type in self._types
            if type.name in self._capacities
        ]


def queues_of(left: list[Capacity]) -> tuple[str, ...] | None:
    """Where there is a free place for something: None is any queue, none at all a full pool."""
    if any(each.queues is None for each in left):
        return None
    return tuple(dict.fromkeys(queue for each in left for queue in each.queues or ()))


def kinds_of(left: list[Capacity]) -> tuple[Kind, ...]:
    return tuple(kind for kind in KINDS if any(each.places.get(kind, 0) > 0 for each in left))


class Prefetch:
    """How far ahead jobs are taken: about 20 ms of work per worker, no job behind those that take longer.

    By moving averages of run times: per task, and over all tasks of a kind.
    """

    def __init__(self, fitting: int) -> None:
        self._fitting, self._most = fitting, MOST_AHEAD
        self._tasks: dict[str, float] = {}
        self._kinds: dict[str, float] = {}

    def overlap(self, overlaps: bool) -> None:
        """If so, half of the tasks run while a server works on the others; else that gains nothing (measured)."""
        self._most = MOST_AHEAD | (OVERLAPPING if overlaps else {})

    def note(self, kind: str, task: str, seconds: float) -> None:
        before = self._tasks.get(task, seconds)
        self._tasks[task] = before + WEIGHT * (seconds - before)
        before = self._kinds.get(kind, seconds)
        self._kinds[kind] = before + WEIGHT * (seconds - before)

    def note_at_least(self, kind: str, task: str, seconds: float) -> None:
        """It has run for that long and is not done: waiting for its end to learn would be too late."""
        for averages, name in ((self._tasks, task), (self._kinds, kind)):
            if seconds > averages.get(name, 0.0):
                averages[name] = seconds

    def is_short(self, task: str) -> bool:
        """Whether another job may be put behind one of these."""
        return self._tasks.get(task, AHEAD_S) < AHEAD_S

    def ahead(self, kind: str) -> int:
        """How many jobs one worker of that kind may have, the running one included."""
        return self._jobs(kind, self._kinds.get(kind))

    def of(self, kind: str, task: str) -> int:
        return self._jobs(kind, self._tasks.get(task))

    def _jobs(self, kind: str, average: float | None) -> int:
        if average is None or average >= AHEAD_S:
            return 1
        return min(self._most.get(kind, 1), self._fitting, max(1, int(AHEAD_S / max(average, 1e-6))))
