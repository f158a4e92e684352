"""The order of claims: higher priority, then older root, then id."""

from __future__ import annotations

from random import Random

from covey.engine.engine import Engine
from covey.testing import FakeClock
from tests.kit import HandPool, command, python_task
from tests.kit.hand_pool import only


def test_jobs_of_one_microsecond_are_claimed_in_the_order_they_came(engine: Engine, pool: HandPool) -> None:
    ids = [engine.enqueue([command()])[0].id for _ in range(50)]
    ids += [made.id for made in engine.enqueue([command() for _ in range(50)])]
    assert [pool.claim_one().id for _ in range(50)] + [claim.id for claim in pool.claim(50)] == ids


def test_higher_priority_comes_first_then_the_older_job(engine: Engine, pool: HandPool) -> None:
    dice = Random(1)
    priorities = [dice.choice([-5, 0, 0, 3, 9]) for _ in range(60)]
    made = engine.enqueue([command(priority=p) for p in priorities])
    expected = sorted(zip(priorities, made, strict=True), key=lambda pair: (-pair[0], pair[1].id))
    claims = pool.claim(20) + pool.claim(20) + pool.claim(20)
    assert [claim.id for claim in claims] == [job.id for _, job in expected]


def test_the_order_holds_across_queues_and_kinds(engine: Engine, pool: HandPool) -> None:
    specs = [
        command(queue="a", priority=1),
        python_task("t", queue="b", priority=2),
        python_task("t", kind="async", queue="a", priority=2),
        command(queue="b", priority=1),
        command(queue="c", priority=3),
    ]
    ids = [made.id for made in engine.enqueue(specs)]
    assert [claim.id for claim in pool.claim(5)] == [ids[4], ids[1], ids[2], ids[0], ids[3]]


def test_the_order_holds_over_more_queues_than_one_statement_can_name(engine: Engine, pool: HandPool) -> None:
    ids = [made.id for made in engine.enqueue([command(queue=f"q{n % 350}", priority=n % 3) for n in range(700)])]
    expected = sorted(ids, key=lambda id: (-(ids.index(id) % 3), id))
    assert [claim.id for claim in pool.claim(700)] == expected


def test_a_pool_claims_only_from_its_queues(engine: Engine) -> None:
    ids = [made.id for made in engine.enqueue([command(queue=q) for q in ("a", "b", "c", "a")])]
    pool = HandPool(engine, queues=("a", "c"))
    assert [claim.id for claim in pool.claim(9)] == [ids[0], ids[2], ids[3]]
    assert HandPool(engine, queues=("nothing-here",)).claim(9) == []


def test_commands_and_sync_tasks_share_the_places_of_the_pool(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command(), python_task("t"), python_task("t", kind="async")])
    places = {"command": 1, "sync": 1, "async": 5}
    assert [claim.kind for claim in pool.claim(6, places=places, bound=1)] == ["command", "async"]


def test_places_are_counted_per_kind_and_a_full_kind_hides_no_other(engine: Engine, pool: HandPool) -> None:
    engine.enqueue([command(priority=9) for _ in range(20)])
    late = [made.id for made in engine.enqueue([python_task("t"), python_task("t", kind="async")])]
    claims = pool.claim(10, places={"command": 2, "sync": 1, "async": 5})
    assert [claim.kind for claim in claims] == ["command", "command", "sync", "async"]
    assert [claim.id for claim in claims[2:]] == late
    assert pool.claim(10, places=only("sync", 10)) == []
    assert len(pool.claim(3, places=only("command", 10))) == 3  # never more than the limit in all


def test_a_retried_job_comes_before_younger_ones(engine: Engine, pool: HandPool, clock: FakeClock) -> None:
    old, *_ = engine.enqueue([command() for _ in range(3)])
    pool.fail(pool.claim_one())
    clock.advance(2)
    assert pool.claim_one().id == old.id
