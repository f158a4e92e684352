"""A pure model and the real engine, driven by the same random verbs and compared after each step."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import pytest
from apsw import ConstraintError
from hypothesis import Phase, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Struct
from msgspec.structs import replace

from covey import env
from covey.core.machine import SECOND, Signal, Transition, decide
from covey.core.model import Claim, JobRow
from covey.core.turn import Reply, Turn
from covey.core.view import Edit
from covey.engine.engine import Engine
from covey.errors import NotFound, Refused
from covey.open import open_dialect
from covey.store import migrate
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit import HandPool, check_queue, command
from tests.kit.hand_pool import report

REPORTS = ("success", "failure", "abort", "snooze", "taken_back", "stopped", "worker_lost")
DAY = 86_400


class Model(Struct):
    """What the architecture says a job is: enough to predict its next state."""

    row: JobRow
    run_at: int = 0
    priority: int = 0

    def apply(self, change: Transition) -> None:
        row = self.row
        row.state = change.state
        row.fence += change.fence
        row.attempts = 0 if change.fresh_attempts else row.attempts + change.attempts
        row.interruptions = 0 if change.fresh_attempts else row.interruptions + change.interruptions
        row.pool = row.pool if change.keeps_pool else None
        self.run_at = change.run_at if change.run_at is not None else self.run_at


def new_row(id: int, state: str, max_attempts: int) -> JobRow:
    return JobRow(
        id=id,
        state=state,  # type: ignore[arg-type]
        fence=0,
        attempts=0,
        max_attempts=max_attempts,
        interruptions=0,
        pool=None,
        phase="run",
        backoff_base=2.0,
        backoff_cap_s=300.0,
        jitter=0,
        parent_id=None,
        root_id=id,
        children_total=0,
        children_unfinished=0,
        children_failed=0,
        joins=0,
        on_error=None,
        queue="default",
        key=None,
    )


class QueueMachine(RuleBasedStateMachine):
    engine_class: type[Engine] = Engine
    store_class: type[Store] = Store
    new_queue: Callable[[], str] = staticmethod(lambda: f"memory:{os.urandom(8).hex()}")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        dialect = open_dialect(self.new_queue())
        migrate.migrate(dialect, database_id=env.new_database_id(), now=self.clock())
        store = self.store_class(dialect)
        store.plan()  # as production does: on PostgreSQL most turns are one message then
        self.engine = self.engine_class(store, clock=self.clock, rng=Random(0))
        self.jobs: dict[int, Model] = {}
        self.removed: set[int] = set()
        self.pools: list[HandPool] = []
        self.claims: list[tuple[HandPool, Claim]] = []  # every claim ever handed out, stale ones included
        self.enqueued = 0

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────────

    @initialize()
    def two_pools(self) -> None:
        self.pools = [HandPool(self.engine, name=name) for name in ("a", "b")]

    @rule(delay=some.sampled_from([0, 0, 5]), tries=some.integers(1, 3), priority=some.integers(0, 2))
    def enqueue(self, delay: int, tries: int, priority: int) -> None:
        spec = command(delay_s=float(delay), max_attempts=tries, priority=priority)
        (made,) = self.engine.enqueue([spec])
        assert made.id not in self.jobs.keys() | self.removed
        row = new_row(made.id, "scheduled" if delay else "pending", tries)
        self.jobs[made.id] = Model(row, run_at=self.clock() + delay * SECOND, priority=priority)
        self.enqueued += 1

    @rule(seconds=some.sampled_from([1, 3, 10, 400]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(which=some.integers(0, 1), count=some.integers(1, 3), idle=some.booleans())
    def claim(self, which: int, count: int, idle: bool) -> None:
        pool = self.pools[which]
        claims = pool.turn(want=count, idle=idle).claims
        self._promoted()
        ready = [m for m in self.jobs.values() if m.row.state == "pending"]
        ready.sort(key=lambda m: (-m.priority, m.row.id))
        # What was interrupted often keeps its place in the line, and waits there for an idle worker.
        meant = [m for m in ready[:count] if idle or m.row.interruptions < 3]
        assert [claim.id for claim in claims] == [m.row.id for m in meant]
        for claim in claims:
            model = self.jobs[claim.id]
            model.row.pool = pool.id
            model.apply(decide(model.row, Signal("claim"), self.clock(), Random(0)))
            assert (claim.fence, claim.attempt) == (model.row.fence, model.row.attempts)
            self.claims.append((pool, claim))

    @rule(data=some.data(), outcome=some.sampled_from(REPORTS))
    def report(self, data: some.DataObject, outcome: str) -> None:
        """Of any claim ever made: most are stale, and must change nothing."""
        if not self.claims:
            return
        pool, claim = data.draw(some.sampled_from(self.claims[-12:]))
        self._report(pool, claim, outcome)

    @rule(which=some.integers(0, 1), outcome=some.sampled_from(["success", "failure"]))
    def report_of_the_run_before(self, which: int, outcome: str) -> None:
        """The same pool has the job again: only the fence tells the two runs apart."""
        pool = self.pools[which]
        held = [claim for owner, claim in self.claims if owner is pool and self._is_held(claim)]
        if held:
            self.beat(which, forget=True)
            self.claim(which, 3, idle=True)
            self._report(pool, held[-1], outcome)

    def _is_held(self, claim: Claim) -> bool:
        model = self.jobs.get(claim.id)
        return model is not None and model.row.state == "processing" and model.row.fence == claim.fence

    def _report(self, pool: HandPool, claim: Claim, outcome: str) -> None:
        if pool not in self.pools:
            assert pool.turn(report(claim, outcome, error="boom")).lost
            return
        reply = pool.turn(report(claim, outcome, error="boom", after_s=7.0 if outcome == "snooze" else None))
        model = self.jobs.get(claim.id)
        row = model.row if model else None
        if model and row and row.state == "processing" and row.fence == claim.fence:
            model.apply(
                decide(row, Signal(outcome, "boom", 7.0 if outcome == "snooze" else None), self.clock(), Random(0))
            )  # type: ignore[arg-type]
            assert not reply.refused
        elif row and row.state == "cancelled" and row.pool == pool.id and row.fence == claim.fence + 1:
            row.pool = None
            assert not reply.refused
        else:
            assert bool(reply.refused) == (row is None or row.fence != claim.fence)
        self._promoted()

    @rule(which=some.integers(0, 1), forget=some.booleans())
    def beat(self, which: int, forget: bool) -> None:
        """A beat that knows of everything, or of nothing: then what it holds is handed back."""
        pool = self.pools[which]
        mine = [claim for owner, claim in self.claims if owner is pool]
        pool.beat(*([] if forget else mine))
        if forget:
            for model in self.jobs.values():
                if model.row.pool == pool.id:
                    model.apply(decide(model.row, Signal("stranded"), self.clock(), Random(0)))
        self._promoted()

    @rule(which=some.integers(0, 1))
    def lose(self, which: int) -> None:
        pool = self.pools[which]
        pool.lose()
        for model in self.jobs.values():
            if model.row.pool == pool.id:
                model.apply(decide(model.row, Signal("pool_lost"), self.clock(), Random(0)))
        self.pools[which] = HandPool(self.engine, name="ab"[which])

    @rule(which=some.integers(0, 1))
    def reap_too_late(self, which: int) -> None:
        """The reaper looked before the pool's beat and acts after it: the pool lives, nothing changes."""
        pool = self.pools[which]
        (seen,) = (each for each in self.engine.pools() if each.id == pool.id)
        pool.beat(*(claim for owner, claim in self.claims if owner is pool))
        self._promoted()
        assert self.engine.reap(pool.id, seen.beat) == 0
        assert pool.id in [each.id for each in self.engine.pools()]

    @rule(data=some.data(), verb=some.sampled_from(["cancel", "retry", "remove", "edit"]))
    def person(self, data: some.DataObject, verb: str) -> None:
        if not self.jobs:
            return
        model = self.jobs[data.draw(some.sampled_from(sorted(self.jobs)))]
        row = model.row
        if verb in ("cancel", "retry"):
            try:
                change = decide(row, Signal(verb), self.clock(), Random(0))  # type: ignore[arg-type]
            except Refused:
                change = None
            try:
                self.engine.cancel([row.id]) if verb == "cancel" else self.engine.retry([row.id])
                assert change is not None
                model.apply(change)
            except Refused:
                assert change is None
        elif verb == "remove":
            may = row.state in ("completed", "dead", "cancelled") and row.pool is None
            try:
                self.engine.remove([row.id])
                assert may
                del self.jobs[row.id]
                self.removed.add(row.id)
            except Refused:
                assert not may
        else:
            try:
                self.engine.edit(row.id, Edit(priority=9))
                assert row.state in ("pending", "scheduled", "failed")
                model.priority = 9
            except Refused:
                assert row.state not in ("pending", "scheduled", "failed")

    def _promoted(self) -> None:
        for model in self.jobs.values():
            if model.row.state in ("scheduled", "failed") and model.run_at <= self.clock():
                model.row.state = "pending"

    # ── what must hold after each of them ───────────────────────────────────────────────────────────────────────────

    @invariant()
    def model_and_engine_agree(self) -> None:
        rows = self.engine.store.rows(list(self.jobs))
        assert rows.keys() == self.jobs.keys()
        for id, model in self.jobs.items():
            seen, meant = rows[id], model.row
            assert (seen.state, seen.fence, seen.attempts, seen.interruptions, seen.pool) == (
                meant.state,
                meant.fence,
                meant.attempts,
                meant.interruptions,
                meant.pool,
            ), f"job {id}"

    @invariant()
    def nothing_is_lost_and_nothing_added(self) -> None:
        assert sum(self.engine.status().counts.values()) + len(self.removed) == self.enqueued
        for id in list(self.removed)[:3]:
            with pytest.raises(NotFound):
                self.engine.job(id)

    def teardown(self) -> None:
        try:
            assert check_queue(self.engine, acknowledged=self.jobs, removed=self.removed) == []
        finally:
            self.engine.close()


def run(machine: type[QueueMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps))


def test_the_model_and_postgresql_agree_after_every_random_verb(
    proof: Callable[[int, int], int], postgres_queue: Callable[[], str]
) -> None:
    """The same random stories as on SQLite: what agrees with the model on both agrees with each other."""
    machine = type("OnPostgres", (QueueMachine,), {"new_queue": staticmethod(postgres_queue)})
    run(machine, proof(15, 1000), proof(30, 50))


def test_the_model_and_the_engine_agree_after_every_random_verb(proof: Callable[[int, int], int]) -> None:
    """Conservation: enqueued = live + completed + dead + cancelled + removed, after each step."""
    run(QueueMachine, proof(50, 5000), proof(25, 40))


def hunt(machine: type[RuleBasedStateMachine], changes: dict[str, Any], *, steps: int) -> None:
    """Raises what the bug makes the model say. Many short hunts find it sooner than a few long ones."""
    for examples, seed in product((6, 40), range(1, 13)):
        mutant = type("Mutant", (machine,), {**changes, "_hypothesis_internal_use_seed": seed})
        found = settings(
            max_examples=examples, stateful_step_count=steps, phases=[Phase.generate], report_multiple_bugs=False
        )
        run_state_machine_as_test(mutant, settings=found)


# ── the checker can fail: planted bugs are caught ───────────────────────────────────────────────────────────────────


class NoFence(Engine):
    """Believes every report, however old."""

    def _apply(self, turn: Turn, reply: Reply, now: int) -> int:
        rows = self.store.rows([each.id for each in turn.reports])
        turn.reports = [replace(each, fence=rows[each.id].fence) for each in turn.reports if each.id in rows]
        return super()._apply(turn, reply, now)


class ReapWhateverHappened(Engine):
    """Reaps a pool although it has beaten since it was judged."""

    def reap(self, pool: int, beat: int, reason: str | None = None) -> int:
        return super().reap(pool, next(each.beat for each in self.pools() if each.id == pool))


class RetryCountsOn(Engine):
    """Hands a lost pool's jobs back without giving the attempt back."""

    def reap(self, pool: int, beat: int, reason: str | None = None) -> int:
        ids = [row[0] for row in self.store.ask("held_by", pool=pool)]
        reaped = super().reap(pool, beat, reason)
        with self.store.transaction():
            for id in ids:
                self.store.raw("update {jobs} set attempts = attempts + 1 where id = :id", id=id)
        return reaped


class Forgetful(Engine):
    """Removes a job for good when it should only cancel it."""

    def cancel(self, refs: Any) -> Any:
        changes = super().cancel(refs)
        with self.store.transaction():
            self.store.raw("delete from {jobs} where pool is null and state = 'cancelled'")
        return changes


class WrongSql(Store):
    """One statement is wrong, plain and planned."""

    statement, old, new = "", "", ""

    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect)
        assert self.old in self._sql[self.statement]
        self._sql[self.statement] = self._sql[self.statement].replace(self.old, self.new)


class AttemptNotCounted(WrongSql):
    statement, old, new = "claim", "attempts = attempts + 1,", ""


class FenceNotRaised(WrongSql):
    statement, old, new = "claim", "fence = fence + 1,", ""


class CancelLetsGo(WrongSql):
    statement, old, new = "change", "case when :keeps_pool then pool end", "null"


class AttemptNotCountedInOneMessage(WrongSql):
    statement, old, new = "claim_lane", "attempts = attempts + 1,", ""


class FenceNotRaisedInOneMessage(WrongSql):
    statement, old, new = "claim_lane", "fence = fence + 1,", ""


class WrongOrderInOneMessage(WrongSql):
    statement, old, new = "claim_lane", "order by priority desc, seq, id limit", "order by seq, id limit"


class StaleSuccessBelieved(WrongSql):
    statement, old, new = "complete", "fence = done.fence and", "fence <> 0 and"


MUTANTS: dict[str, dict[str, Any]] = {
    "no fence": {"engine_class": NoFence},
    "unconditional reap": {"engine_class": ReapWhateverHappened},
    "a lost pool costs an attempt": {"engine_class": RetryCountsOn},
    "a job vanishes": {"engine_class": Forgetful},
    "attempt not counted at the claim": {"store_class": AttemptNotCounted},
    "fence not raised by the claim": {"store_class": FenceNotRaised},
    "a cancelled job leaves its pool at once": {"store_class": CancelLetsGo},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_bug_is_caught_by_the_model(mutant: str) -> None:
    with pytest.raises((AssertionError, ConstraintError, StopIteration)):
        hunt(QueueMachine, MUTANTS[mutant], steps=30)


POSTGRES_MUTANTS: dict[str, type[Store]] = {
    "attempt not counted by a turn in one message": AttemptNotCountedInOneMessage,
    "fence not raised by a turn in one message": FenceNotRaisedInOneMessage,
    "priorities not looked at by a turn in one message": WrongOrderInOneMessage,
    "a stale success is believed": StaleSuccessBelieved,
}


@pytest.mark.parametrize("mutant", POSTGRES_MUTANTS)
def test_a_planted_bug_of_postgresql_is_caught_by_the_model(mutant: str, postgres_queue: Callable[[], str]) -> None:
    changes = {"store_class": POSTGRES_MUTANTS[mutant], "new_queue": staticmethod(postgres_queue)}
    with pytest.raises((AssertionError, StopIteration)):
        hunt(QueueMachine, changes, steps=30)
