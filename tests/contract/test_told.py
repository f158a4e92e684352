"""What a claim tells of its family, and what is left of a run that nobody holds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from covey.core.model import Child
from covey.engine import leftovers
from covey.engine.engine import Engine
from covey.errors import LeaseLost
from tests.kit import HandPool, child, command

from .family import children, root

STREAMS = ("out", "err", "spawn", "info")


def failed(text: str | None) -> list[Child]:
    return [] if text is None else msgspec.json.decode(text, type=list[Child])


def test_a_child_is_told_which_siblings_have_failed(engine: Engine, pool: HandPool) -> None:
    id = root(engine, pool, *(child(f"child {n}", key=f"k{n}", max_attempts=1) for n in range(4)))
    first, second = pool.claim(2)
    assert (first.failed_siblings, second.failed_siblings) == (None, None)
    pool.fail(first, "it broke")
    third = pool.claim_one()
    assert failed(third.failed_siblings) == [Child(first.id, "k0", "shell", "dead", error="it broke")]
    engine.cancel([second.id])
    assert [sibling.state for sibling in failed(pool.claim_one().failed_siblings)] == ["dead", "cancelled"]
    assert len(children(engine, id)) == 4


def test_of_very_many_failed_siblings_the_first_hundred_are_told(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, *(child("x", max_attempts=1) for _ in range(131)))
    claims = pool.claim(130)
    for claim in claims:
        pool.fail(claim)
    told = failed(pool.claim_one().failed_siblings)
    assert [sibling.id for sibling in told] == [claim.id for claim in claims[:100]]


def test_a_family_without_failures_and_a_root_are_told_nothing(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, child(), child())
    engine.enqueue([command("other")])
    assert [claim.failed_siblings for claim in pool.claim(3)] == [None] * 3


def test_a_running_child_may_ask_which_siblings_have_failed_by_now(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, *(child(f"child {n}", key=f"k{n}", max_attempts=1) for n in range(3)))
    first, second, third = pool.claim(3)
    assert pool.source.failed_siblings(pool.id, third.id, third.fence) == []
    pool.fail(first, "it broke")
    broke = Child(first.id, "k0", "shell", "dead", error="it broke")
    assert pool.source.failed_siblings(pool.id, third.id, third.fence) == [broke]
    engine.cancel([second.id, third.id])
    told = pool.source.failed_siblings(pool.id, third.id, third.fence)  # it is being stopped, and still ours
    assert [(each.id, each.state) for each in told] == [
        (first.id, "dead"),
        (second.id, "cancelled"),
        (third.id, "cancelled"),
    ]


def test_only_the_pool_that_runs_a_job_is_told_of_its_siblings(engine: Engine, pool: HandPool) -> None:
    root(engine, pool, child(max_attempts=1), child())
    first, second = pool.claim(2)
    pool.fail(first)
    for strange in ((pool.id + 1, second.id, second.fence), (pool.id, second.id, 2), (pool.id, first.id, first.fence)):
        with pytest.raises(LeaseLost, match="is not yours any more"):
            pool.source.failed_siblings(*strange)
    (alone,) = engine.enqueue([command()])
    claim = pool.claim_one()
    assert (claim.id, pool.source.failed_siblings(pool.id, claim.id, claim.fence)) == (alone.id, [])


def test_files_of_runs_that_nobody_holds_are_swept_away(engine: Engine, pool: HandPool, tmp_path: Path) -> None:
    engine.enqueue([command(f"job {n}") for n in range(4)])
    held, cancelled, done, back = pool.claim(4)
    pool.succeed(done)
    pool.report(back, "taken_back")
    engine.cancel([cancelled.id])
    live = tmp_path / "live"
    live.mkdir()
    for claim in (held, cancelled, done, back):
        for stream in STREAMS:
            (live / f"{claim.id}.{claim.fence}.{stream}").touch()
    (live / "999.1.spawn").touch()
    (live / "notes").touch()
    assert leftovers.sweep(engine.store, str(live)) == 3
    kept = {f"{claim.id}.{claim.fence}.{stream}" for claim in (held, cancelled) for stream in STREAMS}
    assert {path.name for path in live.iterdir()} == kept | {"notes"}
    assert leftovers.sweep(engine.store, "") == leftovers.sweep(engine.store, str(tmp_path / "none")) == 0
