"""A pool driven by hand: claims, reports and beats exactly when the test says so, and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.core.model import KINDS, Claim, Kind, Report, RunOutcome, Spawn
from covey.core.ports import Source
from covey.core.turn import Capacity, Held, PoolInfo, Reply, Turn

from .factories import pool_info


class HandPool:
    def __init__(self, source: Source, info: PoolInfo | None = None, **fields: Any) -> None:
        self.source = source
        self.info = info or pool_info(**fields)
        registered = source.register(self.info)
        self.id, self.database_id, self.config = registered.pool, registered.database_id, registered.config
        self.number = 0

    def turn(self, *reports: Report, **fields: Any) -> Reply:
        """One turn, numbered one higher than the last."""
        return self.source.turn(self.said(*reports, **fields))

    def said(
        self,
        *reports: Report,
        want: int = 0,
        places: dict[str, int] | None = None,
        idle: bool = True,
        bound: int | None = None,
        held: Sequence[Held | Claim] | None = None,
        wants: list[Capacity] | None = None,
        **fields: Any,
    ) -> Turn:
        """The next turn, for somebody else to hand in."""
        self.number += 1
        wanted = Capacity(
            queues=self.info.queues,
            places=dict.fromkeys(self.info.kinds, want) if places is None else places,
            limit=want,
            idle=idle,
            bound=bound,
        )
        return Turn(
            pool=self.id,
            database_id=fields.pop("database_id", self.database_id),
            number=fields.pop("number", self.number),
            reports=list(reports),
            wants=[wanted] if wants is None else wants,
            held=None if held is None else [Held(each.id, each.fence) for each in held],
            **fields,
        )

    def beat(self, *held: Held | Claim) -> Reply:
        """A timed beat: it lists everything that the pool still has."""
        return self.turn(held=held)

    def claim(self, count: int = 1, **fields: Any) -> list[Claim]:
        return self.turn(want=count, **fields).claims

    def claim_one(self, **fields: Any) -> Claim:
        """The one job that is there to be had."""
        (claim,) = self.claim(1, **fields)
        return claim

    def report(self, claim: Claim | Held, outcome: RunOutcome, **fields: Any) -> Reply:
        return self.turn(report(claim, outcome, **fields))

    def succeed(self, claim: Claim | Held, **fields: Any) -> Reply:
        return self.report(claim, "success", **fields)

    def spawn(self, claim: Claim | Held, *spawned: Spawn, **fields: Any) -> Reply:
        """The run succeeds and asks for these jobs."""
        return self.report(claim, "success", spawned=list(spawned), **fields)

    def fail(self, claim: Claim | Held, error: str = "boom", **fields: Any) -> Reply:
        return self.report(claim, "failure", error=error, **fields)

    def lose(self, by: Source | None = None) -> int:
        """Another pool has given this one up."""
        source = by or self.source
        handed_back = 0
        # A server may write our beat between the look and the reap: then nothing was done, and it is tried again.
        while beats := [pool.beat for pool in source.pools() if pool.id == self.id]:
            handed_back += source.reap(self.id, beats[0])
        return handed_back


def report(claim: Claim | Held, outcome: RunOutcome, **fields: Any) -> Report:
    return Report(claim.id, claim.fence, outcome, **fields)


def only(kind: Kind, count: int) -> dict[str, int]:
    """Places for one kind and none for the others."""
    return {each: count if each == kind else 0 for each in KINDS}
