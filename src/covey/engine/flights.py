"""Single flight: of jobs with one key one runs at a time. The others follow: blocked, without worker, attempt, lane.

A flight is one run: (job, fence). It is decided by the claim and over when that run is, however it ends; nothing has to
be given back for that. Whoever moves a job with a key on says so to its `Trees`, and `landed` frees who followed it:
all of them after a success, else one, which is then the next to run, or the one after it if it never comes to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..core.machine import Signal, decide
from ..core.model import FLIGHT, Claim, JobRow
from ..core.turn import Capacity
from ..store.asking import json_text
from ..store.store import Store
from . import cache_records
from .cache_records import Record

if TYPE_CHECKING:
    from .claims import Claims
    from .trees import Trees

AT_ONCE = 1000  # followers that one landing sees off; those beyond are claimed, and hit then
EVERYBODY = 1 << 30
ROUNDS = 20  # of claims in one turn of which some need not run


def take(pool: int, want: Capacity, lanes: Claims, trees: Trees) -> list[Claim]:
    """What the pool is to run now. Claims that need no run make room for what comes behind them."""
    runs: list[Claim] = []
    for _ in range(ROUNDS):
        taken = lanes.take(pool, want)
        if not any(claim.cache_key for claim in taken):
            return runs + taken
        stay = sift(trees.store, taken, trees)
        trees.settle()
        runs += stay
        if len(stay) == len(taken):
            return runs
        lanes.forget()
        want = _less(want, stay)
        if want.limit <= 0:
            return runs
    trees.opened += len(runs) + 1  # there is more of them than one turn should see off: worth a ring
    return runs


def _less(want: Capacity, taken: Sequence[Claim]) -> Capacity:
    """What is left of the room beside these."""
    places = dict(want.places)
    for claim in taken:
        places[claim.kind] -= 1
    bound = want.bound
    if bound is not None:
        bound -= sum(claim.kind != "async" for claim in taken)
    return replace(want, places=places, limit=want.limit - len(taken), bound=bound)


def sift(store: Store, claims: Sequence[Claim], trees: Trees) -> list[Claim]:
    """Those of the claims that are to run. The others have their result already, or wait for somebody who makes it."""
    asked = {claim.id: claim for claim in claims if claim.cache_key is not None}
    if not asked:
        return list(claims)
    refresh = {row[0] for row in store.ask("cached_calls", ids=json_text(list(asked))) if row[6]}
    looking = {id: claim for id, claim in asked.items() if id not in refresh}
    if not looking:
        return list(claims)
    known = cache_records.there(store, {claim.cache_key or "" for claim in looking.values()}, trees.now)
    rows = store.rows(list(looking))
    return [c for c in claims if c.id not in looking or not _is_done(store, c, rows[c.id], known, trees)]


def _is_done(store: Store, claim: Claim, row: JobRow, known: Mapping[str, Record], trees: Trees) -> bool:
    """Whether this claim needs no run of its own now."""
    key = claim.cache_key or ""
    if (record := known.get(key)) is not None:
        cache_records.hit(store, row, record, trees)
        return True
    if store.ask("take_flight", key=key, job_id=claim.id, fence=claim.fence):
        # Where writers run beside each other, the flight before may have ended since we looked.
        record = cache_records.there(store, {key}, trees.now).get(key) if not store.keeps_others_waiting else None
        if record is not None:
            store.ask("end_flight", key=key)
            cache_records.hit(store, row, record, trees)
        return record is not None
    store.change(row, decide(row, Signal("follow"), trees.now, trees.rng), trees.now)
    store.ask("follow", job_id=claim.id, key=key)
    if row.lane is not None and row.parent_id is None:
        trees.released(row)
    return True


def landed(trees: Trees) -> None:
    """The flights of these jobs, as far as they are over, hold nobody back any more."""
    store = trees.store
    moved, trees.flown = trees.flown, {}
    store.ask("unfollow", ids=json_text(sorted(moved)))
    keys = json_text(sorted(set(moved.values())))
    ended = json_text([row[0] for row in store.ask("ended_flights", keys=keys)])
    if ended != "[]":
        store.ask("end_flights", keys=ended)
        for (key,) in sorted(store.ask("followed", keys=ended)):
            free(trees, key)


def free(trees: Trees, key: str) -> None:
    """There is no flight of this key: its followers have what came of it, or one of them is the next."""
    store = trees.store
    record = cache_records.there(store, {key}, trees.now).get(key)
    ids = [row[0] for row in store.ask("followers_of", key=key, limit=1 if record is None else EVERYBODY)]
    if not ids:
        return
    trees.changed = True
    store.ask("unfollow", ids=json_text(ids))
    store.lock_trees(ids)
    rows = store.rows(ids)
    for place, id in enumerate(ids):
        row = rows.get(id)
        if row is None or row.state != "blocked":
            continue
        if record is not None and place < AT_ONCE:
            cache_records.hit(store, row, record, trees)
            continue
        trees.unblock(row, FLIGHT)
        if record is None:
            store.ask("reserve_flight", key=key, job_id=id)
