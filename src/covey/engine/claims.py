"""What pools may take now: found and claimed, for the turns of one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import tree
from ..core.model import Claim
from ..core.turn import Capacity
from ..store.ready import Lane, Sought
from ..store.store import Store
from .queues import Lanes

MOST_OF_TREE = 1000  # waiting jobs of one tree that are looked at
Pairs = Sequence[tuple[str, str]]  # (queue, kind)


class Claims:
    """Looks at the lanes for several pools, one after the other.

    What was learnt for one holds for the next until somebody says `forget`: claims only ever empty a lane. The rules of
    queues are read again for each, because the claims before it count.
    """

    def __init__(self, store: Store, now: int, has_rules: bool) -> None:
        self._store, self._now, self._has_rules = store, now, has_rules
        self._busy: dict[Sought, Pairs] = {}  # where such jobs wait
        self._wet: set[tuple[str, str]] = set()  # lanes, not serial ones, in which something was seen …
        self._dry: set[tuple[str, str]] = set()  # … and in which nothing is left

    def know(self, sought: Sought, busy: Pairs) -> None:
        """So much is known already."""
        self._busy[sought] = busy

    def forget(self) -> None:
        """Other lanes may have work now."""
        self._busy.clear()
        self._dry.clear()

    def there_is(self, want: Capacity) -> bool:
        """Whether there is something to take. Locks nothing."""
        if want.root is not None:
            return bool(self._in_tree(want, Lanes(self._store, self._now, self._has_rules), locked=False))
        lanes = self._lanes(want, Lanes(self._store, self._now, self._has_rules))
        if self._wet and any((lane.queue, lane.kind) in self._wet for lane in lanes if not lane.serial):
            return True
        for _, kind, queue, lane in self._store.ready(lanes, 1):
            if lane is None:
                self._wet.add((queue, kind))
            return True
        for each in lanes:
            self._is_dry(each)
        return False

    def take(self, pool: int, want: Capacity) -> list[Claim]:
        """The next jobs in order for which there is a place of their kind. A full kind does not hide another's jobs."""
        lanes = Lanes(self._store, self._now, self._has_rules)
        claims: list[Claim] | None = None
        if want.root is not None:
            claims = self._take_chosen(pool, want, self._in_tree(want, lanes, locked=True), lanes)
        else:
            found = self._lanes(want, lanes)
            if lanes.plain and len(found) == 1:
                claims = self._take_lane(pool, want, found[0])
            if claims is None:
                claims = self._take_merged(pool, want, found, lanes)
        self.tell_families(claims)
        return claims

    def _take_chosen(self, pool: int, want: Capacity, chosen: list[int], lanes: Lanes) -> list[Claim]:
        claims = self._store.claim(pool, chosen, self._now, idle=want.idle) if chosen else []
        lanes.taken(claims)
        return claims

    def _take_lane(self, pool: int, want: Capacity, lane: Lane) -> list[Claim] | None:
        most = min(lane.most, most_of(want)[lane.kind])
        claims = self._store.claim_lane(pool, lane._replace(most=most), self._now, idle=want.idle)
        if claims == [] and most > 0 and want.idle:
            self._is_dry(lane)
        return claims

    def _take_merged(self, pool: int, want: Capacity, found: list[Lane], lanes: Lanes) -> list[Claim]:
        chosen: list[int] = []
        left, bound, plain, seen = dict(want.places), _bound(want), lanes.plain, False

        def room(kind: str) -> bool:
            return left[kind] > 0 and (bound > 0 or kind == "async")

        for id, kind, queue, lane in self._store.ready(found, want.limit, locked=True, room=room):
            seen = True
            if room(kind) and (plain or lanes.admits(id, queue, lane)):
                left[kind] -= 1
                bound -= kind != "async"
                chosen.append(id)
                if len(chosen) == want.limit:
                    break
        if not seen:
            for each in found:
                if room(each.kind):  # else nobody looked
                    self._is_dry(each)
        return self._take_chosen(pool, want, chosen, lanes)

    def _in_tree(self, want: Capacity, lanes: Lanes, *, locked: bool) -> list[int]:
        """The next jobs of one tree that may be claimed now, of the queues that are wanted."""
        left, chosen = most_of(want), []
        for id, kind, queue, lane in self._store.ready_in_tree(want.root or 0, MOST_OF_TREE, locked=locked):
            if left.get(kind, 0) <= 0 or (want.queues is not None and queue not in want.queues):
                continue
            if not lanes.is_paused(queue) and lanes.admits(id, queue, lane):
                left[kind] -= 1
                chosen.append(id)
                if len(chosen) == want.limit:
                    break
        return chosen

    def _lanes(self, want: Capacity, lanes: Lanes) -> list[Lane]:
        """Everything that may be claimed from now."""
        places = {kind: min(n, want.limit) for kind, n in want.places.items() if n > 0}
        sought = Sought(want.queues, tuple(places))
        if sought not in self._busy:
            self._busy[sought] = self._store.busy_lanes(sought)
        pairs = self._busy[sought]
        return lanes.of((pair for pair in pairs if pair not in self._dry) if self._dry else pairs, places)

    def _is_dry(self, lane: Lane) -> None:
        """Of a serial lane it says nothing: the next pool may come when it is free."""
        if not lane.serial:
            self._dry.add((lane.queue, lane.kind))

    def tell_families(self, claims: Sequence[Claim]) -> None:
        """Each claim has what its run must know of its tree: the time that is left, its children, failed siblings."""
        kin = [c for c in claims if c.parent_id is not None or c.tree_deadline_at is not None or c.phase == "join"]
        parents = {claim.parent_id for claim in kin if claim.parent_id is not None}
        failed = self._store.failed_outcomes(parents) if parents else {}
        for claim in kin:
            if claim.parent_id in failed:
                claim.failed_siblings = failed[claim.parent_id]
            if claim.tree_deadline_at is not None:
                claim.timeout_s = tree.time_left_s(claim.timeout_s, claim.tree_deadline_at, self._now)
            if claim.phase == "join":
                claim.children = self._store.outcomes(claim.id)


def most_of(want: Capacity) -> dict[str, int]:
    """How many of each kind, if there were nothing else."""
    most = {"async": want.limit}
    return {kind: min(places, most.get(kind, _bound(want))) for kind, places in want.places.items() if places > 0}


def _bound(want: Capacity) -> int:
    """How many commands and sync tasks together."""
    return want.limit if want.bound is None else want.bound
