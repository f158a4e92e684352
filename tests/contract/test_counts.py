"""Counts that nobody counts are those that counting gives, whatever has happened and however far the duty has come."""

from __future__ import annotations

from random import Random

import pytest

from covey.engine.duties import count_jobs
from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, command

from .family import parent_of

BEHIND = True
QUEUES = ("one", "two", "three")


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The duty takes a few rows at a time, so that verbs fall before, in and behind what it has counted."""
    monkeypatch.setattr(count_jobs, "WINDOW", 7)
    monkeypatch.setattr(count_jobs, "MARGIN", 3)


def recounted(engine: Engine) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for queue, state, count in engine.store.raw("select queue, state, count(*) from {jobs} group by queue, state"):
        found.setdefault(queue, {})[state] = int(count)
    return found


def counted_up_to(engine: Engine) -> int:
    ((cursor,),) = engine.store.raw("select cursor from {duties} where name = 'count'")
    return int(cursor)


@pytest.mark.parametrize("seed", range(4))
def test_after_any_verbs_in_any_order_the_counts_are_right(
    engine: Engine, pool: HandPool, clock: FakeClock, seed: int
) -> None:
    dice = Random(seed)

    def some(*states: str) -> list[int]:
        wanted = ", ".join(f"'{state}'" for state in states)
        ids = [row[0] for row in engine.store.raw(f"select id from {{jobs}} where state in ({wanted}) order by id")]
        return dice.sample(ids, min(len(ids), 2))

    def end(outcome: str) -> None:
        for claim in pool.claim(2):
            pool.succeed(claim) if outcome == "success" else pool.report(claim, outcome, error="no")  # type: ignore[arg-type]

    def move() -> None:
        for id in some("pending", "scheduled"):
            from covey.core.view import Edit

            engine.edit(id, Edit(queue=dice.choice(QUEUES)))

    def later() -> None:
        clock.advance(31)
        pool.beat()

    verbs = [
        lambda: engine.enqueue([command(queue=dice.choice(QUEUES)) for _ in range(dice.randrange(1, 6))]),
        lambda: engine.enqueue([command(queue=dice.choice(QUEUES), run_at=clock() + 10**9)]),
        lambda: end("success"),
        lambda: end("success"),
        lambda: end("failure"),
        lambda: end("abort"),
        lambda: engine.cancel(some("pending", "scheduled", "failed")),
        lambda: engine.retry(some("dead", "cancelled", "failed")),
        lambda: engine.remove(some("completed", "dead", "cancelled")),
        move,
        later,
        later,
    ]
    for _ in range(60):
        dice.choice(verbs)()
        assert engine.counts() == recounted(engine)
    later()
    assert counted_up_to(engine) > 0, "the duty has counted something"


def test_a_tree_counts_with_its_children_and_goes_with_them(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    top, _ = parent_of(engine, pool, 3)
    clock.advance(31)
    pool.beat()
    assert engine.counts() == recounted(engine)
    for claim in pool.claim(3):
        pool.succeed(claim)
    engine.remove([top])
    assert engine.counts() == recounted(engine) == {}


def test_what_was_removed_is_known_as_ended_for_ever(engine: Engine, pool: HandPool) -> None:
    made = [each.id for each in engine.enqueue([command(max_attempts=1) for _ in range(3)])]
    one, two, _ = pool.claim(3)
    pool.succeed(one)
    pool.fail(two)
    engine.remove(made[:2])
    _, removed = engine.ever_ended()
    assert removed["default"] == {"completed": 1, "dead": 1, "cancelled": 0}


def test_once_a_minute_it_is_written_down_how_it_stands(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    engine.enqueue([command() for _ in range(5)])
    pool.succeed(pool.claim_one())
    clock.advance(60)
    begin = clock() // 60_000_000
    for _ in range(4):
        pool.beat()
        clock.advance(31)
    found = engine.samples(begin)
    assert len({sample.minute for sample in found}) == len(found) >= 2
    assert {(sample.completed, sample.waiting) for sample in found} == {(1, 4)}


def test_a_copied_count_that_is_wrong_would_be_seen(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    """Planted: the note of a removal is lost."""
    made = [each.id for each in engine.enqueue([command() for _ in range(20)])]
    clock.advance(31)
    pool.beat()
    assert counted_up_to(engine) >= made[2]
    engine.cancel(made[:2])
    engine.store.raw("insert into {counted} (queue, jobs) values ('lost', 5)")
    assert engine.counts() != recounted(engine)
