"""What waits, and how a pool gets it: looks at lanes, and claims. The part of `Store` that a turn needs most."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..core.model import LONELY_INTERRUPTIONS as LONELY
from ..core.model import Claim, Report
from ..core.turn import Turn
from .dialect import Dialect
from .families import json_text
from .postgres.dead_entries import LASTS_S, Frontier, Survey, Way, is_slow
from .postgres.store import Taken, claims_of, done_text

Tuples = list[tuple[Any, ...]]
Found = tuple[Any, ...]  # last turn's number, stop_requested_at, seal, cancels, due_at, deadline_at, has_rules

# Statements that are asked inside a turn with a lock on what they find, and elsewhere without.
LOCKED = ("lane", "free_lane", "owned_lane", "lane_from", "lane_behind", "ready_in_tree")


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


class Waiting:
    dialect: Dialect
    ask: Callable[..., Tuples]
    value: Callable[..., Any]
    look_at_pools: Callable[[Sequence[int]], dict[int, Found]]
    _calls: dict[str, str]
    _text: Callable[[str], str]
    _lock: Callable[..., None]

    def __init__(self) -> None:
        self._frontiers: dict[tuple[str, str], Frontier] = {}
        self._apart_until = 0.0  # lanes are looked at one by one until then
        self._way = Way()  # as `take` finds it
        self._surveys: dict[Sought | str, Survey] = {}  # by what was asked

    def ready(
        self, lanes: Sequence[Lane], limit: int, *, locked: bool = False, room: Callable[[str], bool] = bool
    ) -> Iterator[tuple[Any, ...]]:
        """(id, kind, queue, lane) of the jobs to be claimed next, in order, from several lanes merged.

        About ``limit`` will be taken: of each lane its share is read, and more only while its kind still has ``room``.
        ``locked``: nobody else can claim them meanwhile, and those that somebody else is about to are left out.
        """
        share = min(limit, limit // max(1, len(lanes)) + 4)
        suffix = "_locked" if locked and self.dialect.row_locks else ""
        first = self._together([lane for lane in lanes if room(lane.kind)], share, suffix) if suffix else {}
        merged = heapq.merge(*(self._lane(lane, share, suffix, room, first.get(lane)) for lane in lanes))
        return (row[2:] for row in merged)

    def ready_in_tree(self, root: int, limit: int, *, locked: bool = False) -> Tuples:
        """(id, kind, queue, lane) of the jobs of one tree that wait, in order."""
        suffix = "_locked" if locked and self.dialect.row_locks else ""
        return [row[2:] for row in self.ask("ready_in_tree" + suffix, root=root, limit=limit)]

    def _together(self, lanes: Sequence[Lane], share: int, suffix: str) -> dict[Lane, Tuples]:
        """What stands first in each lane, in one message. Not in lanes with a long way, nor while all are slow."""
        began = time.monotonic()
        short = [lane for lane in lanes if not lane.serial and began >= self._frontier(lane).until]
        if len(short) < 2 or began < self._apart_until:
            return {}
        text = self._text("lane" + suffix)
        asked = ({"queue": lane.queue, "kind": lane.kind, "limit": min(share, lane.most)} for lane in short)
        found = self.dialect.queries(*((text, each) for each in asked))
        began, ended = self._looked(began)
        if is_slow(ended - began, sum(map(len, found))):
            self._apart_until = ended + LASTS_S  # which of them was it?
        return dict(zip(short, found, strict=True))

    def _lane(
        self, lane: Lane, share: int, suffix: str, room: Callable[[str], bool], first: Tuples | None
    ) -> Iterator[tuple[Any, ...]]:
        given: set[int] = set()
        while room(lane.kind):
            size = min(share, lane.most)
            rows, first = self._pending(lane, size, suffix) if first is None else first, None
            # Where writers run beside each other, something may have come to the front since the last look.
            yield from (row for row in rows if row[2] not in given) if given else rows
            if len(rows) < size or size == lane.most:
                return
            given.update(row[2] for row in rows)
            share *= 4

    def begin_turns(
        self, pools: Sequence[int], sought: Sought | None, *, locked: bool
    ) -> tuple[dict[int, Found], Tuples | None]:
        """What turns of these pools must know first, and with ``sought`` also `busy_lanes`, where that saves a message.

        ``locked``: nobody else takes a turn for them, beats for them or gives them up meanwhile.
        """
        if not self.dialect.row_locks:
            return self.look_at_pools(pools), None
        if locked:
            self._lock("lock_pools", pools=json_text(pools))
        if sought is None:
            return self.look_at_pools(pools), None
        if (known := self._known_lanes(sought)) is not None:
            return self.look_at_pools(pools), known
        survey, began = self._surveys[sought], time.monotonic()
        first = (self._text("pool_for_turn"), {"pool": pools[0]})
        found, lanes = self.dialect.queries(first, (self._text("ready_lanes"), sought.asked()))
        survey.note(*self._looked(began), lanes)
        return dict(zip(pools, found, strict=False)), lanes

    def busy_lanes(self, sought: Sought) -> Tuples:
        """(queue, kind) of everything of that sort that waits."""
        if self.dialect.row_locks and (known := self._known_lanes(sought)) is not None:
            return known
        return self._surveyed(sought, lambda: self.ask("ready_lanes", **sought.asked()))

    def _known_lanes(self, sought: Sought) -> Tuples | None:
        """What the last look found, if looks are slow; where that was nothing, what has come since."""
        survey = self._surveys.setdefault(sought, Survey())
        known = survey.known(time.monotonic())
        if known == [] and survey.newest is not None:
            return self.ask("ready_behind", newest=survey.newest, **sought.asked())
        if known is None:
            # Before the look that is to come: whatever is committed later has a higher id, or waits for the next one.
            survey.newest = self.value("newest_id") if survey.slow else None
        return known

    def ready_counts(self, kinds: Sequence[str], limit: int) -> Tuples:
        """(queue, kind, how many wait, counted no further than ``limit``) of everything that waits."""
        asked = {"kinds": json_text(kinds), "limit": limit}
        return self._surveyed("counted", lambda: [row for row in self.ask("ready_counts", **asked) if row[2]])

    def _surveyed(self, what: Sought | str, look: Callable[[], Tuples]) -> Tuples:
        if not self.dialect.row_locks:
            return look()
        survey = self._surveys.setdefault(what, Survey())
        began = time.monotonic()
        if (known := survey.known(began)) is None:
            known = look()
            survey.note(*self._looked(began), known)
        return known

    def _looked(self, began: float) -> tuple[float, float]:
        """From when to when a look counts: not at all where the way is known to be short, however long it took."""
        ended = time.monotonic()
        return (ended if self._way.is_short(ended) else began), ended

    def claim_lane(self, pool: int, lane: Lane, now: int, *, idle: bool) -> list[Claim] | None:
        """The next jobs of a lane without rules are the pool's: found and claimed in one statement.

        None where that cannot be: each writer is alone anyway, or the way to the first job is long.
        """
        if not self.dialect.row_locks or lane.serial:
            return None
        frontier = self._frontier(lane)
        began = time.monotonic()
        if began < frontier.until:
            return None
        lonely = 1 << 30 if idle else LONELY
        where: dict[str, Any] = {"queue": lane.queue, "kind": lane.kind, "limit": lane.most}
        rows = self.ask("claim_lane", pool=pool, now=now, lonely=lonely, **where)
        claims = claims_of(rows, lane.queue, lane.kind)
        first = [(-claim.priority, row[8], claim.id) for claim, row in zip(claims[:1], rows, strict=False)]
        frontier.note(*self._looked(began), lane.most, first)
        return claims

    def take(
        self, turn: Turn, reports: Sequence[Report], sought: Sought, most: Mapping[str, int], now: int, *, idle: bool
    ) -> Taken | None:
        """A whole turn in one message, with these plain successes and so many jobs of each kind at most.

        None where there is no quicker way than turns usually take.
        """
        began = time.monotonic()
        if "take" not in self._calls or began < self._way.until:
            return None
        zygote_pid, zygote_ticks = turn.zygote or (None, None)
        rows = self.dialect.at_once(
            self._calls["take"],
            {
                "pool": turn.pool,
                "turn_no": turn.number,
                "now": now,
                "lonely": 1 << 30 if idle else LONELY,
                "told": len(reports),
                "most": json_text(most),
                "done": done_text(reports),
                "results": json_text([(r.id, r.result) for r in reports if r.result is not None]),
                "draining": turn.draining,
                "zygote_pid": zygote_pid,
                "zygote_ticks": zygote_ticks,
                **sought.asked(),
            },
            rings=("end",) if reports else (),
        )
        if not rows:
            return Taken(None, 0, 0, [])
        *found, lanes, ended, queue, kind, passed = msgspec.json.decode(rows.pop()[2])
        self._way.note(began, time.monotonic(), passed, len(reports) + len(rows))
        return Taken(tuple(found), lanes, ended, claims_of(rows, queue, kind))

    def _pending(self, lane: Lane, limit: int, suffix: str) -> Tuples:
        if not lane.serial:
            where: dict[str, Any] = {"queue": lane.queue, "kind": lane.kind, "limit": limit}
            if not self.dialect.row_locks:
                return self.ask("lane", **where)
            return self._frontier(lane).look(
                time.monotonic(),
                self._looked,
                lambda: self.ask("lane" + suffix, **where),
                lambda frontier: self._onward(frontier, suffix, where),
            )
        if lane.owner is None:
            return self.ask("free_lane" + suffix, queue=lane.queue, kind=lane.kind, limit=limit)
        return self.ask("owned_lane" + suffix, queue=lane.queue, kind=lane.kind, owner=lane.owner, limit=limit)

    def _frontier(self, lane: Lane) -> Frontier:
        return self._frontiers.setdefault((lane.queue, lane.kind), Frontier())

    def _onward(self, frontier: Frontier, suffix: str, where: dict[str, Any]) -> Tuples:
        if frontier.key is not None:
            priority, seq, id = frontier.key
            return self.ask("lane_from" + suffix, priority=priority, seq=seq, id=id, **where)
        if frontier.newest is None:
            frontier.newest = self.value("newest_id")
        return self.ask("lane_behind" + suffix, newest=frontier.newest, **where)

    def claim(self, pool: int, ids: Sequence[int], now: int, *, idle: bool) -> list[Claim]:
        """These jobs are the pool's, in the order asked. Without an idle worker, those often interrupted stay."""
        lonely = 1 << 30 if idle else LONELY
        rows = self.ask("claim", pool=pool, ids=json_text(ids), now=now, lonely=lonely)
        found = {row[0]: Claim(*row) for row in rows}
        return [found[id] for id in ids if id in found]
