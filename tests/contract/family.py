"""Families for tests: a root with children, made by hand."""

from __future__ import annotations

from typing import Any

from covey.core.model import Claim, Spawn
from covey.core.view import JobView
from covey.engine.engine import Engine
from tests.kit import HandPool, child, command


def root(engine: Engine, pool: HandPool, *spawned: Spawn, report: dict[str, Any] | None = None, **spec: Any) -> int:
    """A new root that has run and spawned these."""
    (made,) = engine.enqueue([command("root", **spec)])
    for claim in pool.claim(100):
        if claim.id == made.id:
            pool.spawn(claim, *spawned, **(report or {}))
        else:
            pool.report(claim, "taken_back")
    return made.id


def parent_of(engine: Engine, pool: HandPool, count: int, **spec: Any) -> tuple[int, list[int]]:
    """A root with so many children of one attempt each."""
    id = root(engine, pool, *(child(f"child {n}", max_attempts=1) for n in range(count)), **spec)
    return id, [job.id for job in children(engine, id)]


def children(engine: Engine, id: int) -> list[JobView]:
    return engine.tree(id, limit=10_000).children


def states(engine: Engine, *ids: int) -> list[str]:
    return [engine.job(id).state for id in ids]


def claims(pool: HandPool, count: int) -> dict[int, Claim]:
    """So many claims, by job."""
    found = {claim.id: claim for claim in pool.claim(count)}
    assert len(found) == count
    return found
