"""One turn inside a transaction, step by step. Each step finds what those before it have done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from ..core.model import ENDED
from ..core.turn import Capacity, Held, Reply, Turn
from ..env import failpoint
from ..store.store import Store
from ..store.turn_state import Instants, TurnState
from . import duties, flights
from .claims import Claims
from .duties.duty import BATCH
from .reports import Reports
from .ticks import BUSY, Ticks
from .trees import Trees


class Common(Struct):
    """What the turns of one transaction share. Each sees what those before it have done."""

    now: int
    claims: Claims
    instants: Instants
    changed: bool = False  # whether somebody's report may have cancelled what another one runs


class TurnSteps:
    def __init__(
        self,
        turn: Turn,
        state: TurnState,
        unknown: Sequence[Held],  # of what the pool holds by the rows, but not by its own list
        common: Common,
        store: Store,
        rng: Random,
        reports: Reports,
        housekeeping: duties.Housekeeping,
        ticks: Ticks,
    ) -> None:
        self.turn, self.state, self.unknown, self.common = turn, state, unknown, common
        self.store, self.rng, self.reports, self.housekeeping = store, rng, reports, housekeeping
        self.ticks = ticks
        self.now = common.now
        self.trees = Trees(store, self.now, rng)
        self.reply = Reply([], [], [], stop=state.stop_requested_at is not None, now=self.now)
        self.due_at, self.deadline_at = common.instants.due_at, common.instants.deadline_at
        self.ended = self.moved = self.promoted = 0  # jobs: by reports or time, handed back, whose hour has come
        self.tidied = False

    def take(self) -> Reply:
        self.apply_reports()
        self.hand_back()
        self.expire_trees()
        self.trees.settle()
        failpoint("turn.after_reports")
        self.promote()
        self.fire()
        self.claim()
        failpoint("turn.after_claim")
        self.tell_cancels()
        self.beat()
        self.say_whether_drained()
        self.say_when_next()
        self.ring()
        return self.reply

    def apply_reports(self) -> None:
        self.ended = self.reports.apply(self.turn, self.reply, self.trees)

    def hand_back(self) -> None:
        """What the pool does not know it has is pending again: the answer with that claim was lost."""
        self.moved = self.reports.reconcile(self.turn, self.unknown, self.reply, self.trees)

    def expire_trees(self) -> None:
        if self.deadline_at is not None and self.deadline_at <= self.now:
            self.ended += self.trees.expire(BATCH)

    def promote(self) -> None:
        """Jobs whose hour has come are pending."""
        if self.due_at is not None and self.due_at <= self.now:
            self.promoted = len(self.store.ask("promote", now=self.now, limit=BATCH))

    def fire(self) -> None:
        """Ticks of schedules that have come are decided."""
        common, fire_at = self.common, self.common.instants.fire_at
        if fire_at is None or fire_at > self.now:
            return
        fired = self.ticks.fire(self.now)
        if fired is None:
            common.instants = replace(common.instants, fire_at=self.now + BUSY)
            return
        common.changed = True  # a run of an earlier tick may have been cancelled
        self.promoted += fired + 1

    def claim(self) -> None:
        self.common.changed |= self.trees.changed
        if self.has_moved_jobs():
            self.common.claims.forget()
        for want in self.turn.wants:
            if want.limit > 0:
                self.reply.claims += flights.take(self.turn.pool, want, self.common.claims, self.trees)

    def tell_cancels(self) -> None:
        if self.state.cancels or self.common.changed:
            self.reply.cancels = [Held(*row) for row in self.store.ask("stopping_of", pool=self.turn.pool)]

    def beat(self) -> None:
        """The pool is alive, and duties are done if it is time. Where nothing was found, nothing is written."""
        if is_idle(self.turn) and not (self.reply.claims or self.promoted or self.ended):
            return
        turn = self.turn
        zygote_pid, zygote_ticks = turn.zygote or (None, None)
        self.store.ask(
            "beat",
            pool=turn.pool,
            turn_no=turn.number,
            now=self.now,
            draining=turn.draining,
            zygote_pid=zygote_pid,
            zygote_ticks=zygote_ticks,
        )
        if turn.workers is not None:
            self.store.put_workers(turn.pool, turn.workers, turn.given_up)
        if turn.events:
            self.store.add_events(turn.pool, turn.events)
        if self.housekeeping.is_due(self.now):
            self.housekeeping.do(self.store, self.now, self.rng)
            self.common.claims.forget()
            self.tidied = True

    def say_whether_drained(self) -> None:
        if self.turn.draining and not self.reply.claims and self.turn.wants:
            self.reply.drained = all(is_drained(self.store, want, self.now) for want in self.turn.wants)

    def say_when_next(self) -> None:
        if self.has_moved_jobs() or self.tidied or (self.reply.claims and self.deadline_at is not None):
            self.common.instants = self.store.instants()
        self.reply.next_due_at = self.common.instants.next_at

    def ring(self) -> None:
        if self.ended or self.trees.flew:
            self.store.ring("end")
        if self.promoted + self.moved + self.trees.opened > len(self.reply.claims):
            self.store.ring("pool")

    def has_moved_jobs(self) -> bool:
        """Otherwise than by a claim."""
        return bool(self.promoted or self.trees.changed or self.moved)


def is_idle(turn: Turn) -> bool:
    return not (turn.reports or turn.events or turn.draining) and turn.held is None and turn.workers is None


def is_drained(store: Store, want: Capacity, now: int) -> bool:
    """Whether nothing is left, of what the pool asks for, that could run now or come from what runs."""
    if want.root is not None:
        return _is_tree_drained(store, want.root, now)
    queues = want.queues if want.queues is not None else [row[0] for row in store.ask("queues")]
    paused = {row[0] for row in store.ask("paused_queues", now=now)}
    ours = {"queues": json.dumps(queues), "kinds": json.dumps(list(want.places))}
    free = json.dumps([queue for queue in queues if queue not in paused])
    # In this order: a join that becomes ours between the two is seen by the second.
    return not store.value("undrained_above", **ours) and not store.value("undrained", open=free, **ours)


def _is_tree_drained(store: Store, root: int, now: int) -> bool:
    row = store.row(root)
    if row is None or row.state in ENDED:
        return True
    return row.state == "pending" and row.queue in {each[0] for each in store.ask("paused_queues", now=now)}
