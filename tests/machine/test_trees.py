"""A naive model of trees and the real engine, driven by the same random verbs and compared after each step."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from apsw import ConstraintError
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from covey import env
from covey.core.model import ENDED, Claim, Spawn
from covey.engine.engine import Engine
from covey.errors import Refused
from covey.open import open_dialect
from covey.store import migrate
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit import HandPool, after, check_queue, child, command, sibling
from tests.kit.hand_pool import report

from .forest import LANE, Forest, Job, new_job
from .test_model import WrongSql, hunt

QUEUES = ("default", LANE)
QUEUE = some.sampled_from([None, None, *QUEUES])
ROOT = some.fixed_dictionaries(
    {
        "queue": some.sampled_from(QUEUES),
        "joins": some.booleans(),
        "on_error": some.sampled_from(["wait", "cancel", "collect"]),
        "child_mode": some.sampled_from([None, "serial"]),
    }
)
SPAWNS = ("child", "child", "child", "sibling", "after", "always", "unique")


class ForestMachine(RuleBasedStateMachine):
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
        self.forest = Forest()
        self.pools: list[HandPool] = []
        self.claims: list[tuple[HandPool, Claim]] = []

    @initialize(data=some.data(), shapes=some.lists(ROOT, min_size=1, max_size=3))
    def begin(self, data: some.DataObject, shapes: list[dict[str, Any]]) -> None:
        """Every story begins with a family or two."""
        for queue in QUEUES:
            self.engine.set_queue(queue, max_depth=2, serial=queue == LANE)
        self.pools = [HandPool(self.engine, name=name) for name in ("a", "b")]
        for shape in shapes:
            self.enqueue(shape)
        self.claim(0, 4)
        for whose in self.running():
            spawned = data.draw(some.lists(some.sampled_from(["child", "child", "after", "unique"]), max_size=4))
            self._report(whose, "success", [_spawn(what, None) for what in spawned])
        self.claim(1, 3)

    # ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(shape=ROOT)
    def enqueue(self, shape: dict[str, Any]) -> None:
        spec = command(**shape, max_attempts=2)
        (made,) = self.engine.enqueue([spec])
        assert made.id == self.forest.take_id()
        self.forest.jobs[made.id] = new_job(made.id, **shape | {"joins": int(shape["joins"])})

    @rule(which=some.integers(0, 1), count=some.sampled_from([1, 4, 4]))
    def claim(self, which: int, count: int) -> None:
        pool = self.pools[which]
        claims = pool.turn(want=count).claims
        self._after_turn()
        assert [claim.id for claim in claims] == self.forest.claimable(count)
        for claim in claims:
            job = self.forest.jobs[claim.id]
            job.row.pool = pool.id
            job.unique_key = None
            self.forest.signal(job, "claim")
            assert (claim.fence, claim.attempt, claim.phase) == (job.row.fence, job.row.attempts, job.row.phase)
            self.claims.append((pool, claim))

    @precondition(lambda self: self.running())
    @rule(data=some.data(), outcome=some.sampled_from(["failure", "failure", "abort", "snooze", "taken_back"]))
    def report(self, data: some.DataObject, outcome: str) -> None:
        self._report(data.draw(some.sampled_from(self.running())), outcome, [])

    @precondition(lambda self: self.running())
    @rule(data=some.data(), spawned=some.lists(some.sampled_from(SPAWNS), min_size=1, max_size=4), queue=QUEUE)
    def spawn(self, data: some.DataObject, spawned: list[str], queue: str | None) -> None:
        self._report(data.draw(some.sampled_from(self.running())), "success", [_spawn(what, queue) for what in spawned])

    @precondition(lambda self: self.running())
    @rule(data=some.data())
    def finish(self, data: some.DataObject) -> None:
        self._report(data.draw(some.sampled_from(self.running())), "success", [])

    @precondition(lambda self: self.running())
    @rule()
    def finish_all(self) -> None:
        """Everything that runs ends well, in one turn of each pool."""
        for pool in self.pools:
            mine = [claim for owner, claim in self.running() if owner is pool]
            pool.turn(*(report(claim, "success") for claim in mine))
            for claim in mine:
                self._conclude(pool, claim, "success", None, [])
            self._after_turn()

    @precondition(lambda self: self.claims)
    @rule(data=some.data(), outcome=some.sampled_from(["success", "failure", "gone", "gone"]))
    def say_anything(self, data: some.DataObject, outcome: str) -> None:
        """Of any recent claim: most are stale, and must change nothing."""
        spawned = [_spawn("child", None)] if outcome == "success" else []
        self._report(data.draw(some.sampled_from(self.claims[-8:])), outcome, spawned)

    def running(self) -> list[tuple[HandPool, Claim]]:
        jobs = self.forest.jobs
        return [
            (pool, claim)
            for pool, claim in self.claims[-40:]
            if pool in self.pools
            and claim.id in jobs
            and jobs[claim.id].row.fence == claim.fence
            and jobs[claim.id].row.state == "processing"
        ]

    def _report(self, whose: tuple[HandPool, Claim], outcome: str, spawned: list[Spawn]) -> None:
        pool, claim = whose
        after_s = 7.0 if outcome == "snooze" else None
        reply = pool.turn(report(claim, outcome, error="boom", after_s=after_s, spawned=spawned))  # type: ignore[arg-type]
        if pool not in self.pools:
            assert reply.lost
            return
        self._conclude(pool, claim, outcome, after_s, spawned)
        self._after_turn()

    def _conclude(
        self, pool: HandPool, claim: Claim, outcome: str, after_s: float | None, spawned: list[Spawn]
    ) -> None:
        job = self.forest.jobs.get(claim.id)
        if job and job.row.state == "processing" and job.row.fence == claim.fence and outcome != "gone":
            self._apply(job, outcome, after_s, spawned)
        elif job and job.row.state == "cancelled" and job.row.pool == pool.id and job.row.fence == claim.fence + 1:
            job.row.pool = None

    def _apply(self, job: Job, outcome: str, after_s: float | None, spawned: list[Spawn]) -> None:
        if outcome != "success" or not spawned:
            self.forest.signal(job, outcome, error="boom", after_s=after_s)
            return
        relations = {spawn.relation for spawn in spawned}
        too_deep = "child" in relations and job.row.depth + 1 > job.row.max_depth
        orphan = "sibling" in relations and job.row.parent_id is None
        if too_deep or orphan or (job.row.phase == "join" and relations & {"child", "sibling"}):
            self.forest.signal(job, "abort")
            return
        children = [spawn for spawn in spawned if spawn.relation == "child"]
        if children:
            job.row.child_mode = job.row.child_mode or "concurrent"
        self._adopt(job, job, children)
        parent = self.forest.jobs.get(job.row.parent_id or 0)
        if parent is not None:
            self._adopt(parent, job, [spawn for spawn in spawned if spawn.relation == "sibling"])
        self._uncles(job, [spawn for spawn in spawned if spawn.relation == "after"])
        self.forest.signal(job, "success", children=len(children), joins=bool(children and job.row.joins))

    def _adopt(self, parent: Job, spawner: Job, spawned: list[Spawn]) -> None:
        for spawn in spawned:
            behind = parent.row.child_mode == "serial" and bool(self.forest.children(parent.row.id))
            id = self.forest.take_id()
            self.forest.jobs[id] = new_job(
                id,
                state="blocked" if behind else "pending",
                parent_id=parent.row.id,
                root_id=parent.row.root_id,
                seq=parent.row.seq,
                depth=parent.row.depth + 1,
                child_no=len(self.forest.children(parent.row.id)),
                queue=spawn.queue or spawner.row.queue,
            )

    def _uncles(self, job: Job, spawned: list[Spawn]) -> None:
        named = [spawn for spawn in spawned if spawn.spec.unique_key]
        for spawn in [each for each in spawned if not each.spec.unique_key] + named[:1]:
            key = spawn.spec.unique_key
            uncle = next((each for each in self.forest.jobs.values() if key and each.unique_key == key), None)
            if uncle is None:
                id = self.forest.take_id()
                uncle = new_job(id, state="blocked", seq=job.row.seq, queue=spawn.queue or job.row.queue)
                uncle.unique_key = key
                self.forest.jobs[id] = uncle
            elif uncle.row.state != "blocked":
                self.forest.signal(uncle, "block")
            uncle.row.seq = min(uncle.row.seq, job.row.seq)
            uncle.edges[job.row.root_id] = None
            if spawn.when == "always":
                uncle.always.add(job.row.root_id)

    @rule(which=some.integers(0, 1), trouble=some.sampled_from(["lose", "forget", "time", "time"]))
    def trouble(self, which: int, trouble: str) -> None:
        pool = self.pools[which]
        match trouble:
            case "lose":
                pool.lose()
                self._hand_back(pool, "pool_lost")
                self.forest.settle()
                self.pools[which] = HandPool(self.engine, name="ab"[which])
            case "forget":  # a beat that knows of nothing
                pool.beat()
                self._hand_back(pool, "stranded")
                self._after_turn()
            case "time":
                self.clock.advance(40)
                self.forest.now = self.clock()

    def _hand_back(self, pool: HandPool, signal: str) -> None:
        for job in self.forest.jobs.values():
            if job.row.pool == pool.id:
                self.forest.signal(job, signal)

    @precondition(lambda self: self.forest.jobs)
    @rule(data=some.data(), verb=some.sampled_from(["cancel", "cancel", "retry", "retry", "all", "remove"]))
    def person(self, data: some.DataObject, verb: str) -> None:
        id = data.draw(some.sampled_from(sorted(self.forest.jobs)))
        tried = copy.deepcopy(self.forest)
        try:
            _ask(tried, tried.jobs[id], verb)
        except Refused:
            with pytest.raises(Refused):
                self._ask_engine(id, verb)
            return
        self._ask_engine(id, verb)
        tried.settle()
        self.forest = tried

    def _ask_engine(self, id: int, verb: str) -> None:
        match verb:
            case "cancel":
                self.engine.cancel([id])
            case "remove":
                self.engine.remove([id])
            case _:
                self.engine.retry([id], all=verb == "all")

    def _after_turn(self) -> None:
        self.forest.now = self.clock()
        self.forest.settle()
        for job in self.forest.jobs.values():
            if job.row.state in ("scheduled", "failed") and job.run_at <= self.clock():
                job.row.state = "pending"

    # ── what must hold after each of them ───────────────────────────────────────────────────────────────────────────

    @invariant()
    def model_and_engine_agree(self) -> None:
        rows = self.engine.store.rows(list(range(self.forest.last_id + 1)))
        assert rows.keys() == self.forest.jobs.keys()
        for id, job in self.forest.jobs.items():
            meant, seen = self.forest.counted(job), rows[id]
            for name in ("state", "fence", "attempts", "pool", "phase", "seq", "root_id", "child_no", "child_mode"):
                assert getattr(seen, name) == getattr(meant, name), f"{name} of job {id}"
            for name in ("children_total", "children_unfinished", "children_failed"):
                assert getattr(seen, name) == getattr(meant, name), f"{name} of job {id}"

    @invariant()
    def a_lane_runs_one_tree(self) -> None:
        running = {
            job.row.root_id
            for job in self.forest.jobs.values()
            if job.row.pool is not None and job.row.queue == LANE and self._root_queue(job) == LANE
        }
        assert len(running) <= 1
        owners = self.engine.store.raw("select serial_root from {queues} where serial = 1")
        assert owners in ([], [(self.forest.owner,)])

    def _root_queue(self, job: Job) -> str:
        return self.forest.jobs[job.row.root_id].row.queue

    @invariant()
    def nothing_had_to_be_healed(self) -> None:
        assert not any(event.kind == "healed" for event in self.engine.events(limit=10_000))

    def teardown(self) -> None:
        try:
            assert check_queue(self.engine, acknowledged=self.forest.jobs) == []
        finally:
            self.engine.close()


def _spawn(what: str, queue: str | None) -> Spawn:
    told: dict[str, Any] = {} if queue is None else {"queue": queue}
    match what:
        case "child":
            return child(max_attempts=2, **told)
        case "sibling":
            return sibling(max_attempts=2, **told)
        case "unique":
            return after(max_attempts=2, unique_key="u", **told)
        case _:
            return after(max_attempts=2, when="always" if what == "always" else "success", **told)


def _ask(forest: Forest, job: Job, verb: str) -> None:
    match verb:
        case "cancel":
            forest.cancel(job)
        case "remove":
            busy = job.row.pool is not None or any(each.row.pool is not None for each in forest.below(job.row.id))
            if job.row.parent_id is not None or job.row.state not in ENDED or busy:
                raise Refused("not to be removed")
            for each in [*forest.below(job.row.id), job]:
                del forest.jobs[each.row.id]
        case _:
            forest.retry(job, all=verb == "all")


def test_trees_on_postgresql_and_their_model_agree_after_every_random_verb(
    proof: Callable[[int, int], int], postgres_queue: Callable[[], str]
) -> None:
    run_state_machine_as_test(
        type("OnPostgres", (ForestMachine,), {"new_queue": staticmethod(postgres_queue)}),
        settings=settings(max_examples=proof(10, 1000), stateful_step_count=proof(25, 40)),
    )


def test_trees_and_their_model_agree_after_every_random_verb(proof: Callable[[int, int], int]) -> None:
    run_state_machine_as_test(
        ForestMachine,
        settings=settings(max_examples=proof(60, 5000), stateful_step_count=proof(30, 50)),
    )


# ── the model can fail: planted bugs are caught ─────────────────────────────────────────────────────────────────────


class FailuresNotCounted(WrongSql):
    statement, old, new = "count_ends", "children_failed + :failed", "children_failed"


class EndsCountedOnce(WrongSql):
    statement, old, new = "count_ends", "- :ended", "- min(:ended, 1)"


class OnlyChildrenCancelled(WrongSql):
    statement, old, new = "unfinished_below", "where j.finished_at is null", "where false"


class LaneNeverFreed(WrongSql):
    statement, old, new = "release_lane", "where serial_root = :root", "where false"


class LaneNeverTaken(WrongSql):
    statement, old, new = "own_lane", "where name = :name", "where false"


BUGS: dict[str, type[Store]] = {
    "failed children are not counted": FailuresNotCounted,
    "children that end together count once": EndsCountedOnce,
    "grandchildren are not cancelled": OnlyChildrenCancelled,
    "a lane is never freed": LaneNeverFreed,
    "a lane is never taken": LaneNeverTaken,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught_by_the_model(bug: str) -> None:
    with pytest.raises((AssertionError, ConstraintError)):
        hunt(ForestMachine, {"store_class": BUGS[bug]}, steps=35)
