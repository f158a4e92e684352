"""Groups of turns that meet other groups, single turns and people in the same trees. Each has its connection."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from covey.core.model import Claim, Report
from covey.core.turn import Reply
from covey.engine.engine import Engine
from covey.errors import Refused, Unknown
from covey.testing import until
from tests.kit import HandPool, check_queue, child, command
from tests.kit.checker import every_job
from tests.kit.hand_pool import report
from tests.kit.proxy import How, Proxy

from .meeting import fine, together

Open = Callable[..., Engine]
Proof = Callable[[int, int], int]


def deadlocks(engine: Engine) -> int:
    """How many the server has found in this database so far."""
    engine.store.dialect.query("select pg_stat_clear_snapshot()::text", {})
    found = "select deadlocks from pg_stat_database where datname = current_database()"
    return int(engine.store.dialect.query(found, {})[0][0])


def claimed_soon(pool: HandPool) -> Claim:
    """The next job; on a busy machine looks become slow, and then the next one may come late (frontier.py)."""
    claims: list[Claim] = []

    def claimed() -> bool:
        claims.extend(pool.claim(1))
        return bool(claims)

    until(claimed, 10)
    return claims[0]


class Fleet:
    """Pools whose turns go through one engine: together, or one by one."""

    def __init__(self, engine: Engine, name: str, count: int, dice: Random, *, grouped: bool, **fields: Any) -> None:
        self.engine, self.dice, self.grouped = engine, dice, grouped
        self.pools = [HandPool(engine, name=f"{name}-{n}", **fields) for n in range(count)]
        self.mine: dict[int, dict[int, Claim]] = {pool.id: {} for pool in self.pools}
        self.claimed = Counter[int]()

    def go(self, want: int) -> None:
        order = self.dice.sample(self.pools, len(self.pools))
        said = [[self.a_report(claim) for claim in self.mine[pool.id].values()] for pool in order]
        self.hand_in(order, said, want)

    def hand_in(self, order: list[HandPool], said: list[list[Report]], want: int) -> None:
        turns = [pool.said(*each, want=want, held=[]) for pool, each in zip(order, said, strict=True)]
        answers = self.engine.turns(turns) if self.grouped else [self.engine.turn(turn) for turn in turns]
        gone: list[tuple[HandPool, list[Report]]] = []
        for pool, answer in zip(order, fine(answers), strict=True):
            assert isinstance(answer, Reply)
            self.claimed.update((claim.id, claim.fence) for claim in answer.claims)  # type: ignore[arg-type]
            self.mine[pool.id] = {claim.id: claim for claim in answer.claims}
            if answer.cancels:
                gone.append((pool, [report(held, "gone") for held in answer.cancels]))
        for pool, reports in gone:
            pool.turn(*reports)

    def a_report(self, claim: Claim) -> Report:
        dice = self.dice
        if claim.depth == 0 and claim.phase == "run" and dice.random() < 0.7:
            spawned = [child("leaf", max_attempts=2, queue=dice.choice((None, "other"))) for _ in range(4)]
            return report(claim, "success", spawned=spawned)
        outcome = dice.choice(("success", "success", "success", "failure", "taken_back"))
        return report(claim, outcome, error="x" if outcome == "failure" else None, after_s=0.0)

    def is_done(self) -> bool:
        return not any(self.mine.values())


def test_groups_single_turns_and_cancels_that_meet_in_trees_never_deadlock(
    engine: Engine, opened: Open, proof: Proof
) -> None:
    engine.set_queue("narrow", concurrency=5)
    roots = []
    for n in range(proof(60, 600)):
        fields = {"joins": n % 2 == 0, "on_error": ("wait", "cancel")[n % 3 == 0], "max_attempts": 50}
        roots += engine.enqueue([command("root", queue=("default", "narrow", "plain")[n % 3], **fields)])
    ids = [made.id for made in roots]
    before, deadline = deadlocks(engine), time.monotonic() + proof(4, 40)
    fleets = [Fleet(opened(), f"fleet-{n}", 4, Random(n), grouped=n < 3) for n in range(4)]

    def work(fleet: Fleet) -> None:
        while time.monotonic() < deadline or not fleet.is_done():
            fleet.go(want=3 if time.monotonic() < deadline else 0)

    def change(verb: str, seed: int) -> None:
        client, dice = opened(), Random(seed)
        while time.monotonic() < deadline:
            for id in dice.sample(ids, 6):
                with contextlib.suppress(Refused):
                    getattr(client, verb)([id])

    fine(together(*(lambda f=f: work(f) for f in fleets), lambda: change("cancel", 8), lambda: change("retry", 9)))
    twice = [run for run, times in sum((fleet.claimed for fleet in fleets), Counter[int]()).items() if times > 1]
    assert twice == []
    assert all(fleet.claimed for fleet in fleets)
    assert check_queue(engine, acknowledged=ids) == []
    assert deadlocks(engine) == before


def test_two_groups_in_opposite_orders_end_the_same_trees(engine: Engine, opened: Open, proof: Proof) -> None:
    """Each group has one child of every tree: they lock the trees in one order, whatever the order of their turns."""
    trees, before = 4, deadlocks(engine)
    source = HandPool(engine, name="source", queues=("root",))
    sides = [Fleet(opened(), name, trees, Random(1), grouped=True, queues=(name,)) for name in ("left", "right")]
    for _ in range(proof(25, 400)):
        roots = [made.id for made in engine.enqueue([command("root", queue="root") for _ in range(trees)])]
        for _ in roots:
            source.spawn(claimed_soon(source), child(queue="left"), child(queue="right"))
        left, right = ([[report(claimed_soon(pool), "success")] for pool in side.pools] for side in sides)
        fine(
            together(
                lambda: sides[0].hand_in(sides[0].pools, left, 0),  # noqa: B023
                lambda: sides[1].hand_in(sides[1].pools[::-1], right[::-1], 0),  # noqa: B023
            )
        )
        assert [engine.job(id).state for id in roots] == ["completed"] * trees
    assert check_queue(engine) == []
    assert deadlocks(engine) == before


def test_a_group_and_a_cancel_of_jobs_without_family_do_not_wait_for_each_other_in_a_circle(
    engine: Engine, opened: Open, proof: Proof
) -> None:
    """The first turn claims what is being cancelled together with what the second one reports."""
    fleet, person, before = Fleet(opened(), "fleet", 2, Random(1), grouped=True), opened(), deadlocks(engine)
    taker, reporter = fleet.pools
    for _ in range(proof(40, 500)):
        held, pending = (made.id for made in engine.enqueue([command(), command()]))
        claim = claimed_soon(reporter)
        assert claim.id == held
        _, cancelled = together(
            lambda: fleet.hand_in([taker, reporter], [[], [report(claim, "success")]], 1),  # noqa: B023
            lambda: person.cancel([held, pending]),  # noqa: B023
        )
        assert not isinstance(cancelled, Exception) or isinstance(cancelled, Refused), cancelled
        for pool in fleet.pools:
            for stopping in pool.turn(held=list(fleet.mine[pool.id].values())).cancels:
                pool.report(stopping, "gone")
            for left in list(fleet.mine[pool.id].values()):
                pool.report(left, "abort")
            fleet.mine[pool.id] = {}
        with contextlib.suppress(Refused):
            person.cancel([pending])
    assert deadlocks(engine) == before
    assert check_queue(engine) == []


@pytest.mark.parametrize("how", ["before", "after"])
def test_an_unknown_commit_is_every_turns_answer_and_strands_nothing(
    engine: Engine, opened: Open, proxy: Proxy, how: How, proof: Proof
) -> None:
    client = opened(proxy.url)
    made = [each.id for each in engine.enqueue([command() for _ in range(proof(60, 600))])]
    pools = [HandPool(client, name=f"pool-{n}") for n in range(3)]
    held: dict[int, list[Claim]] = {pool.id: [] for pool in pools}
    unknown = 0
    while engine.status().counts["completed"] < len(made):
        reports = {pool.id: [report(claim, "success") for claim in held[pool.id]] for pool in pools}
        proxy.break_next(how)
        answers = client.turns([pool.said(*reports[pool.id], want=4) for pool in pools])
        if any(isinstance(answer, Unknown) for answer in answers):
            assert {type(answer) for answer in answers} == {Unknown}
            unknown += 1
            answers = client.turns([pool.said(*reports[pool.id], want=4, held=[]) for pool in pools])
        for pool, answer in zip(pools, fine(answers), strict=True):
            assert not answer.refused
            held[pool.id] = answer.claims
    assert unknown > 0
    assert {job.attempts for job in every_job(engine)} == {1}
    assert check_queue(engine, acknowledged=made) == []
