"""What only PostgreSQL does: rows are locked, turns and enqueues take one message, claims go past dead entries.

Writers run beside each other here, over a network. The statements are in statements.sql and turn.plpgsql beside this.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...core.model import Claim, Report, Spec
from ...core.options import Defaults
from ...core.turn import Turn
from ...env import failpoint
from ...errors import StoreError
from ..asking import Tuples, json_text
from ..job_rows import NAMES, job_row, root
from ..ready import Lane, Sought, WholeTurn, breaks_allowed
from ..store import Store, done_text
from ..turn_state import TurnState, turn_state
from . import functions
from .caller import Borrowed
from .database import Postgres
from .dead_entries import LASTS_S, Frontier, Survey, Way, is_slow
from .lenders import lend

PLANNING_WAIT_S = 1.0
# Statements that are asked inside a turn with a lock on what they find, and elsewhere without.
LOCKED = ("lane", "free_lane", "owned_lane", "lane_from", "lane_behind", "ready_in_tree")


class PostgresStore(Store):
    keeps_others_waiting = False

    def __init__(self, database: Postgres) -> None:
        super().__init__(database)
        self.database = database
        self._sql |= {f"{name}_locked": f"{self._sql[name]}\nfor no key update skip locked" for name in LOCKED}
        self._calls: dict[str, str] = {}
        self._frontiers: dict[tuple[str, str], Frontier] = {}
        self._apart_until = 0.0  # lanes are looked at one by one until then
        self._way = Way()  # as `take` finds it
        self._surveys: dict[Sought | str, Survey] = {}  # by what was asked

    def plan(self) -> None:
        wanted = functions.calls(self._sql, self.dialect.prefix)
        there = {row[0] for row in self.ask("functions", schema=self.database.schema)}
        missing = [made for function, made, _ in wanted.values() if function not in there]
        try:
            if missing:
                # Soon or not at all: whoever waits to be alone makes everybody else wait.
                with self.dialect.transaction(alone=True, marked=False, wait_s=PLANNING_WAIT_S):
                    self.dialect.query("; ".join(missing), {})
                    failpoint("plan.before_commit")
        except StoreError:
            return  # may not create functions, or a standby: then the plain statements
        self._calls = {name: call for name, (_, _, call) in wanted.items()}

    def ask(self, statement: str, /, **params: Any) -> Tuples:
        return self.dialect.query(self._text(statement), params)

    def _text(self, statement: str) -> str:
        return self._calls.get(statement) or self._sql[statement]

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        self.database.while_waiting(work)
        return True

    def check_lendable(self) -> None:
        """It can."""

    def borrow(self, tx: object) -> Store:
        return Store(Borrowed(self.database, lend(tx)))

    # ── locks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def lock_queues(self) -> None:
        self._lock("lock_queues")

    def lock_trees(self, ids: Sequence[int]) -> None:
        if ids:
            self._lock("lock_trees", ids=json_text(ids))

    def lock_families(self, ids: Sequence[int]) -> None:
        if ids:
            self._lock("lock_families", ids=json_text(ids))

    def _lock(self, statement: str, **params: Any) -> None:
        """Before whatever is asked next."""
        self.database.also(self._text(statement), params)

    # ── enqueue ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def insert_express(self, spec: Spec, now: int, defaults: Defaults) -> int | None:
        values = dict(zip(NAMES, job_row(spec, root(0), now, defaults), strict=True)) | {"args": spec.args}
        ring = self._ring(values["queue"], spec.kind, values["priority"], 1)
        return self.database.express(self._text("insert_express"), values, ring)

    def ring_for(self, fresh: Iterable[tuple[str, str, int]]) -> None:
        """Over a network only those are rung that may be asleep."""
        for (queue, kind, priority), count in Counter(fresh).items():
            self.database.after_commit(*self._ring(queue, kind, priority, count))

    def _ring(self, queue: str, kind: str, priority: int, count: int) -> tuple[str, dict[str, Any]]:
        where = {"queue": queue, "kind": kind, "priority": priority}
        return self._text("ring_unless_backlog"), {"channel": self.database.channel, "fresh": count + 10, **where}

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def whole_turns(self) -> bool:
        return "turn" in self._calls and time.monotonic() >= self._way.until

    def take(
        self, turn: Turn, reports: Sequence[Report], sought: Sought, most: Mapping[str, int], now: int, *, idle: bool
    ) -> WholeTurn | None:
        """In one message."""
        began = time.monotonic()
        zygote_pid, zygote_ticks = turn.zygote or (None, None)
        rows = self.database.at_once(
            self._calls["turn"],
            {
                "pool": turn.pool,
                "turn_no": turn.number,
                "now": now,
                "lonely": breaks_allowed(idle),
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
            return WholeTurn(None, 0, 0, [])
        *state, lanes, ended, queue, kind, passed = msgspec.json.decode(rows.pop()[2])
        self._way.note(began, time.monotonic(), passed, len(reports) + len(rows))
        return WholeTurn(turn_state(*state), lanes, ended, _claims_of(rows, queue, kind))

    def begin_turns(
        self, pools: Sequence[int], sought: Sought | None, *, locked: bool
    ) -> tuple[dict[int, TurnState], Tuples | None]:
        if locked:
            self._lock("lock_pools", pools=json_text(pools))
        if sought is None:
            return self.look_at_pools(pools), None
        if (known := self._known_lanes(sought)) is not None:
            return self.look_at_pools(pools), known
        survey, began = self._surveys[sought], time.monotonic()
        first = (self._text("pool_for_turn"), {"pool": pools[0]})
        found, lanes = self.database.queries(first, (self._text("ready_lanes"), sought.asked()))
        survey.note(*self._looked(began), lanes)
        return {pool: turn_state(*row) for pool, row in zip(pools, found, strict=False)}, lanes

    def claim_lane(self, pool: int, lane: Lane, now: int, *, idle: bool) -> list[Claim] | None:
        """In one statement; None where the way to the first job is long."""
        if lane.serial:
            return None
        frontier = self._frontier(lane)
        began = time.monotonic()
        if began < frontier.until:
            return None
        where: dict[str, Any] = {"queue": lane.queue, "kind": lane.kind, "limit": lane.most}
        rows = self.ask("claim_lane", pool=pool, now=now, lonely=breaks_allowed(idle), **where)
        claims = _claims_of(rows, lane.queue, lane.kind)
        first = [(-claim.priority, row[8], claim.id) for claim, row in zip(claims[:1], rows, strict=False)]
        frontier.note(*self._looked(began), lane.most, first)
        return claims

    # ── past dead entries ───────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, statement: str, locked: bool, **params: Any) -> Tuples:
        return self.ask(statement + "_locked" if locked else statement, **params)

    def _heads(self, lanes: Sequence[Lane], share: int) -> dict[Lane, Tuples]:
        """In one message. Not of lanes with a long way, nor while all are slow."""
        began = time.monotonic()
        short = [lane for lane in lanes if not lane.serial and began >= self._frontier(lane).until]
        if len(short) < 2 or began < self._apart_until:
            return {}
        text = self._text("lane_locked")
        asked = ({"queue": lane.queue, "kind": lane.kind, "limit": min(share, lane.most)} for lane in short)
        found = self.database.queries(*((text, each) for each in asked))
        began, ended = self._looked(began)
        if is_slow(ended - began, sum(map(len, found))):
            self._apart_until = ended + LASTS_S  # which of them was it?
        return dict(zip(short, found, strict=True))

    def _pending(self, lane: Lane, limit: int, locked: bool) -> Tuples:
        if lane.serial:
            return super()._pending(lane, limit, locked)
        where: dict[str, Any] = {"queue": lane.queue, "kind": lane.kind, "limit": limit}
        return self._frontier(lane).look(
            time.monotonic(),
            self._looked,
            lambda: self._look("lane", locked, **where),
            lambda frontier: self._onward(frontier, locked, where),
        )

    def _frontier(self, lane: Lane) -> Frontier:
        return self._frontiers.setdefault((lane.queue, lane.kind), Frontier())

    def _onward(self, frontier: Frontier, locked: bool, where: dict[str, Any]) -> Tuples:
        if frontier.key is not None:
            priority, seq, id = frontier.key
            return self._look("lane_from", locked, priority=priority, seq=seq, id=id, **where)
        if frontier.newest is None:
            frontier.newest = self.value("newest_id")
        return self._look("lane_behind", locked, newest=frontier.newest, **where)

    def busy_lanes(self, sought: Sought) -> Tuples:
        if (known := self._known_lanes(sought)) is not None:
            return known
        return self._surveyed(sought, lambda: super(PostgresStore, self).busy_lanes(sought))

    def ready_counts(self, kinds: Sequence[str], limit: int) -> Tuples:
        return self._surveyed("counted", lambda: super(PostgresStore, self).ready_counts(kinds, limit))

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

    def _surveyed(self, what: Sought | str, look: Callable[[], Tuples]) -> Tuples:
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


def _claims_of(rows: Sequence[tuple[Any, ...]], queue: str, kind: Any) -> list[Claim]:
    """Of one lane, as `claim_lane` answers them."""
    claims = []
    for id, fence, task, attempt, most, timeout_s, key, args, _, unusual in rows:
        if unusual is None:
            claim = Claim(id, fence, task, kind, attempt, most, timeout_s, queue, key, None, 0, 0, args, root_id=id)
        else:
            cwd, keeps, breaks, *rest = msgspec.json.decode(unusual)
            claim = Claim(id, fence, task, kind, attempt, most, timeout_s, queue, key, cwd, keeps, breaks, args, *rest)
        claims.append(claim)
    return claims
