"""Lanes and trees where several writers meet in them. Each through a connection of its own."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from covey.core.model import ENDED, Claim
from covey.engine.engine import Engine
from covey.errors import Refused
from tests.kit import HandPool, after, check_queue, child, command, python_task
from tests.kit.hand_pool import report

from .meeting import fine, together

Open = Callable[..., Engine]
Proof = Callable[[int, int], int]


# ── lanes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_job_slips_into_a_queue_that_becomes_serial_without_its_lane(
    engine: Engine, opened: Open, proof: Proof
) -> None:
    clients = [opened() for _ in range(4)]
    for number in range(proof(20, 200)):
        name = f"line-{number}"
        for client in clients:
            client.enqueue([command(queue=name)])

        def fill(client: Engine, name: str = name) -> None:
            for _ in range(3):
                client.enqueue([command(queue=name)])

        fine(together(*(lambda c=c: fill(c) for c in clients), lambda n=name: engine.set_queue(n, serial=True)))
    count = "select count(*), count(lane) from {jobs} where queue like 'line-%'"
    assert engine.store.raw(count) == [(proof(20, 200) * 16,) * 2]


def test_a_serial_queue_runs_one_at_a_time_for_many_pools(engine: Engine, opened: Open, proof: Proof) -> None:
    engine.set_queue("line", serial=True)
    ids = [made.id for made in engine.enqueue([command(queue="line") for _ in range(proof(40, 400))])]
    order: list[int] = []

    def run(pool: HandPool) -> Callable[[], None]:
        def work() -> None:
            while len(order) < len(ids):
                claims = pool.claim(3)
                assert len(claims) <= 1, claims
                for claim in claims:
                    order.append(claim.id)  # before anybody else can have the next one
                    pool.succeed(claim)

        return work

    fine(together(*(run(HandPool(opened(), name=f"p{n}")) for n in range(4))))
    assert order == ids


# ── trees ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def two(opened: Open) -> tuple[HandPool, HandPool]:
    return HandPool(opened(), name="left", queues=("left",)), HandPool(opened(), name="right", queues=("right",))


def family(engine: Engine, pool: HandPool, **fields: Any) -> int:
    """A root that waits for a child in each of two queues."""
    (root,) = engine.enqueue([command("root", queue="root", **fields)])
    pool.spawn(pool.claim_one(), child(queue="left"), child(queue="right"))
    return root.id


@pytest.mark.parametrize("joins", [False, True])
def test_the_last_two_children_end_at_the_same_moment_on_two_engines(
    engine: Engine, two: tuple[HandPool, HandPool], proof: Proof, joins: bool
) -> None:
    """Each would be the last: one of them is, and the parent moves on once."""
    source = HandPool(engine, name="source", queues=("root",))
    left, right = two
    for _ in range(proof(50, 1000) // (1 + joins)):
        root = family(engine, source, joins=joins)
        one, other = left.claim_one(), right.claim_one()
        fine(together(lambda: left.succeed(one), lambda: right.succeed(other)))  # noqa: B023
        job = engine.job(root)
        assert (job.state, job.children.unfinished) == ("pending" if joins else "completed", 0)
        if joins:
            source.succeed(source.claim_one())
    assert check_queue(engine) == []
    assert not [event for event in engine.events(limit=1000) if event.kind == "healed"]


def test_a_child_that_ends_while_its_root_is_cancelled(
    engine: Engine, opened: Open, two: tuple[HandPool, HandPool], proof: Proof
) -> None:
    source, person = HandPool(engine, name="source", queues=("root",)), opened()
    left, right = two
    ways = Counter[tuple[str, ...]]()
    for number in range(proof(50, 1000)):
        root = family(engine, source)
        one, other = left.claim_one(), right.claim_one()
        if number % 2:
            right.succeed(other)
        ended, cancelled = together(lambda: left.succeed(one), lambda: person.cancel([root]))  # noqa: B023
        fine([ended])
        assert cancelled is None or not isinstance(cancelled, Exception) or isinstance(cancelled, Refused), cancelled
        for pool in (left, right):  # what was cancelled while it ran is gone now
            for held in pool.turn().cancels:
                pool.report(held, "gone")
        tree = engine.store.raw("select state, pool from {jobs} where root_id = :root order by id", root=root)
        assert all(state in ENDED and holder is None for state, holder in tree), tree
        ways[tuple(state for state, _ in tree)] += 1
    assert check_queue(engine) == []
    assert len(ways) > 1, ways  # neither always wins


def test_a_child_that_spawns_while_its_root_is_cancelled_leaves_nobody_behind(
    engine: Engine, opened: Open, proof: Proof
) -> None:
    """The cancel goes down the tree while a branch is being added to it."""
    engine.set_queue("root", max_depth=3)
    source, person = HandPool(engine, name="source", queues=("root",)), opened()
    left = HandPool(opened(), name="left", queues=("left",))
    ways = Counter[tuple[str, ...]]()
    for _ in range(proof(40, 1000)):
        (root,) = engine.enqueue([command("root", queue="root")])
        source.spawn(source.claim_one(), child(queue="left"), child(queue="right"))
        claim = left.claim_one()
        leaves = [child(queue="leaves") for _ in range(3)]
        fine(together(lambda: left.spawn(claim, *leaves), lambda: person.cancel([root.id])))  # noqa: B023
        for held in left.turn().cancels:
            left.report(held, "gone")
        tree = engine.store.raw("select state, pool from {jobs} where root_id = :root order by id", root=root.id)
        assert {state for state, holder in tree} == {"cancelled"}, tree
        assert {holder for state, holder in tree} == {None}
        ways[tuple(state for state, _ in tree)] += 1
    assert check_queue(engine) == []
    assert len(ways) > 1, ways  # with and without leaves: neither always wins


def test_two_parents_of_one_uncle_end_at_the_same_moment(engine: Engine, opened: Open, proof: Proof) -> None:
    """The uncle waits for two roots, in two trees: it is opened once, by whoever comes last."""
    source = HandPool(engine, name="source", queues=("root",))
    pools = [HandPool(opened(), name=name, queues=(name,)) for name in ("left", "right")]
    for number in range(proof(20, 300)):
        key = f"uncle-{number}"
        for pool in pools:
            engine.enqueue([command("root", queue="root")])
            source.spawn(
                source.claim_one(),
                child(queue=pool.info.queues[0]),  # type: ignore[index]
                after("uncle", key=key, if_exists="return", queue="uncles"),
            )
        one, other = (pool.claim_one() for pool in pools)
        fine(together(lambda: pools[0].succeed(one), lambda: pools[1].succeed(other)))  # noqa: B023
        job = engine.job(key)
        assert job.state == "pending", job
    assert check_queue(engine) == []


# ── duties ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pruning_meets_reports_and_cancels(engine: Engine, opened: Open, proof: Proof) -> None:
    """What is being removed and what is being changed at the same moment: neither comes back, nobody fails."""
    deadline = time.monotonic() + proof(2, 15)
    cleaner, person, producer = opened(), opened(), opened()
    pool = HandPool(opened())
    acknowledged: list[int] = []
    far = dict.fromkeys(ENDED, 1 << 60)

    def produce() -> None:
        while time.monotonic() < deadline:
            acknowledged.extend(made.id for made in producer.enqueue([python_task() for _ in range(5)]))

    def work() -> None:
        claims: list[Claim] = []
        while time.monotonic() < deadline or claims:
            want = 10 if time.monotonic() < deadline else 0
            said = [report(c, "success", spawned=[child()] if c.id % 3 == 0 and c.depth == 0 else []) for c in claims]
            reply = pool.turn(*said, want=want)
            gone = [report(held, "gone") for held in reply.cancels]
            if gone:
                pool.turn(*gone)
            cancelled = {held.id for held in reply.cancels}
            claims = [claim for claim in reply.claims if claim.id not in cancelled]

    def cancel() -> None:
        dice = Random(1)
        while time.monotonic() < deadline:
            if acknowledged:
                with contextlib.suppress(Refused):
                    person.cancel([dice.choice(acknowledged[-50:])])

    def prune() -> None:
        cursor: int | None = 0
        while time.monotonic() < deadline:
            cursor, _ = cleaner.prune_window(cursor or 0, far)

    fine(together(produce, work, cancel, prune))
    assert acknowledged
    assert check_queue(engine) == []
