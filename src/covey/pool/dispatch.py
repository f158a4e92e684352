"""Which worker gets which job, and how many more the pool could hold."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.model import Claim, Kind
from .crew import Crew
from .exchange import Offer
from .member import Flight, Member
from .window import Window


class Dispatch:
    def __init__(self, crew: Crew, window: Window, *, kinds: dict[Kind, int], count: int) -> None:
        self._crew, self._window, self._kinds, self._count = crew, window, kinds, count
        self._serial = 0

    def send_run(self, claims: Sequence[Claim]) -> int:
        """How many of these jobs are in workers' sockets: the short ones at the front, all of one task.

        What `send` would do for each, with everything that is the same for all of them looked up once.
        """
        first = claims[0]
        room = self._window.of(first.kind, first.task)
        if room < 2 or first.kind != "sync" or self._working() < self._count:
            return 0
        members = [member for member in self._crew.of(first.kind) if 0 < len(member.flights) < room]
        sent = 0
        for claim in claims:
            if claim.task != first.task or claim.kind != first.kind or not members:
                break
            member = min(members, key=_load)
            self._serial += 1
            if not member.send(Flight(claim, self._serial, False)):
                break
            sent += 1
            if len(member.flights) >= room:
                members.remove(member)
        return sent

    def send(self, claim: Claim, *, behind: bool = True) -> bool:
        """The job is in a worker's socket; False if nobody has room for it. ``behind``: also behind a running job."""
        member = self._choose(claim, behind)
        if member is None:
            return False
        self._serial += 1
        live = claim.kind == "command" or not self._window.is_short(claim.task)
        return member.send(Flight(claim, self._serial, live))

    def offer(self) -> Offer:
        """What the pool can hold with the workers that stand ready now."""
        ready: dict[str, int] = {kind: 0 for kind in self._kinds if kind not in self._crew.failures}
        for member in self._crew.members.values():
            if member.ready:
                ready[member.kind] = ready.get(member.kind, 0) + 1
        ahead = {kind: self._window.ahead(kind) for kind in ("command", "sync")}
        return Offer(ready, self._count, ahead, self._crew.concurrency)

    def _choose(self, claim: Claim, behind: bool) -> Member | None:
        """The least loaded worker of the kind that has room; beyond one job only where jobs are short."""
        best, load = None, 1 << 30
        for member in self._crew.by_kind.get(claim.kind, ()):
            if len(member.flights) < load and member.ready:
                best, load = member, len(member.flights)
        room = self._window.of(claim.kind, claim.task) if behind else 1
        if best is None or load >= max(best.places, room):
            return None
        if load == 0 and claim.kind != "async" and self._working() >= self._count:
            return self._room_behind(claim) if behind else None
        return best

    def _room_behind(self, claim: Claim) -> Member | None:
        """Another worker may not start, but behind a short job of a working one there may be room."""
        room = self._window.of(claim.kind, claim.task)
        working = [member for member in self._crew.of(claim.kind) if 0 < len(member.flights) < room]
        return min(working, key=lambda member: len(member.flights), default=None)

    def _working(self) -> int:
        """Workers that are bound to one job at a time and have one."""
        return sum(bool(m.flights) for m in self._crew.members.values() if m.kind != "async")


def _load(member: Member) -> int:
    return len(member.flights)
