"""What waits, and how a pool gets it: looks at lanes, and claims. The part of `Store` that a turn needs most."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.model import LONELY_INTERRUPTIONS as LONELY
from ..core.model import Claim, Report
from ..core.turn import Turn
from .asking import Asking, Tuples, json_text
from .turn_state import TurnState, turn_state


class Sought(NamedTuple):
    """What sort of job is looked for: of these kinds, in these queues (None: in any)."""

    queues: tuple[str, ...] | None
    kinds: tuple[str, ...]

    def asked(self) -> dict[str, str | None]:
        return {"queues": None if self.queues is None else json_text(self.queues), "kinds": json_text(self.kinds)}


class Lane(NamedTuple):
    """Where to look for pending jobs. ``owner``: of a serial queue only that tree's jobs (0: those that may pass)."""

    queue: str
    kind: str
    most: int
    serial: bool = False
    owner: int | None = None


class WholeTurn(NamedTuple):
    """What came of a turn that the database took by itself; without its pool's row, nothing."""

    state: TurnState | None
    lanes: int  # that have work
    ended: int  # jobs that were reported
    claims: list[Claim]


def breaks_allowed(idle: bool) -> int:
    """How often a job may have been interrupted: those often interrupted stay for a pool with an idle worker."""
    return 1 << 30 if idle else LONELY


class ReadyJobs(Asking):
    # Whether who writes keeps all others waiting: then it is worth a look first whether there is anything to write.
    keeps_others_waiting = True

    def ready(
        self, lanes: Sequence[Lane], limit: int, *, locked: bool = False, room: Callable[[str], bool] = bool
    ) -> Iterator[tuple[Any, ...]]:
        """(id, kind, queue, lane) of the jobs to be claimed next, in order, from several lanes merged.

        About ``limit`` will be taken: of each lane its share is read, and more only while its kind still has ``room``.
        ``locked``: nobody else can claim them meanwhile, and those that somebody else is about to are left out.
        """
        share = min(limit, limit // max(1, len(lanes)) + 4)
        first = self._heads([lane for lane in lanes if room(lane.kind)], share) if locked else {}
        merged = heapq.merge(*(self._lane(lane, share, locked, room, first.get(lane)) for lane in lanes))
        return (row[2:] for row in merged)

    def ready_in_tree(self, root: int, limit: int, *, locked: bool = False) -> Tuples:
        """(id, kind, queue, lane) of the jobs of one tree that wait, in order."""
        return [row[2:] for row in self._look("ready_in_tree", locked, root=root, limit=limit)]

    def _look(self, statement: str, locked: bool, **params: Any) -> Tuples:
        """``locked``: what is found stays as it is until the transaction ends."""
        return self.ask(statement, **params)

    def _heads(self, lanes: Sequence[Lane], share: int) -> dict[Lane, Tuples]:
        """What stands first in each lane, where looks together cost less than one by one."""
        return {}

    def _lane(
        self, lane: Lane, share: int, locked: bool, room: Callable[[str], bool], first: Tuples | None
    ) -> Iterator[tuple[Any, ...]]:
        given: set[int] = set()
        while room(lane.kind):
            size = min(share, lane.most)
            rows, first = self._pending(lane, size, locked) if first is None else first, None
            # Where writers run beside each other, something may have come to the front since the last look.
            yield from (row for row in rows if row[2] not in given) if given else rows
            if len(rows) < size or size == lane.most:
                return
            given.update(row[2] for row in rows)
            share *= 4

    def _pending(self, lane: Lane, limit: int, locked: bool) -> Tuples:
        where: dict[str, Any] = {"queue": lane.queue, "kind": lane.kind, "limit": limit}
        if not lane.serial:
            return self._look("lane", locked, **where)
        if lane.owner is None:
            return self._look("free_lane", locked, **where)
        return self._look("owned_lane", locked, owner=lane.owner, **where)

    def look_at_pools(self, pools: Sequence[int]) -> dict[int, TurnState]:
        """What turns of these pools must know first, of those that are known."""
        if len(pools) == 1:
            found = self.ask("pool_for_turn", pool=pools[0])
            return {pool: turn_state(*row) for pool, row in zip(pools, found, strict=False)}
        return {row[0]: turn_state(*row[1:]) for row in self.ask("pools_for_turns", pools=json_text(pools))}

    def begin_turns(
        self, pools: Sequence[int], sought: Sought | None, *, locked: bool
    ) -> tuple[dict[int, TurnState], Tuples | None]:
        """What turns of these pools must know first, and with ``sought`` also `busy_lanes`, where that saves a message.

        ``locked``: nobody else takes a turn for them, beats for them or gives them up meanwhile.
        """
        return self.look_at_pools(pools), None

    def whole_turns(self) -> bool:
        """Whether the database can take a turn by itself now."""
        return False

    def take(
        self, turn: Turn, reports: Sequence[Report], sought: Sought, most: Mapping[str, int], now: int, *, idle: bool
    ) -> WholeTurn | None:
        """The turn, taken by the database with these plain successes and so many jobs of each kind at most."""
        return None

    def busy_lanes(self, sought: Sought) -> Tuples:
        """(queue, kind) of everything of that sort that waits."""
        return self.ask("ready_lanes", **sought.asked())

    def ready_counts(self, kinds: Sequence[str], limit: int) -> Tuples:
        """(queue, kind, how many wait, counted no further than ``limit``) of everything that waits."""
        return [row for row in self.ask("ready_counts", kinds=json_text(kinds), limit=limit) if row[2]]

    def claim_lane(self, pool: int, lane: Lane, now: int, *, idle: bool) -> list[Claim] | None:
        """The next jobs of a lane without rules are the pool's: found and claimed in one. None where that cannot be."""
        return None

    def claim(self, pool: int, ids: Sequence[int], now: int, *, idle: bool) -> list[Claim]:
        """These jobs are the pool's, in the order asked. Without an idle worker, those often interrupted stay."""
        rows = self.ask("claim", pool=pool, ids=json_text(ids), now=now, lonely=breaks_allowed(idle))
        found = {row[0]: Claim(*row) for row in rows}
        return [found[id] for id in ids if id in found]
