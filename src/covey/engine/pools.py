"""Pools come, are seen to be alive, and go; what one leaves behind is handed back. What there is for them to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

from .. import settings as config
from ..core.machine import Signal, decide
from ..core.model import KINDS, Child
from ..core.turn import Held, LostPool, PendingWork, PoolInfo, Registered
from ..env import failpoint
from ..errors import LeaseLost
from ..store.store import Store
from . import declarations, leftovers, requests, sealing
from .again import repeated
from .duties.duty import BATCH
from .queues import Lanes
from .reports import Reports
from .sealing import writing
from .trees import Trees
from .work_bell import WorkBell

LOST = "its pool was lost"
REAP_WAIT_S = 0.2  # a pool that waits for a lock takes no turns meanwhile
# What a pool that was cut off in the middle has locked: free before its lease is over, so that nobody waits for it.
STILL_S = 1.5
MOST_READY = 1000  # how far the jobs of a lane are counted: more places than that nobody wakes for


class Pools:
    """Pools come and go. What one leaves behind is handed back."""

    def __init__(
        self, store: Store, clock: Callable[[], int], rng: Random, database_id: str, reports: Reports, bell: WorkBell
    ) -> None:
        self._store = store
        self._database_id = database_id
        self._bell = bell
        self._clock = clock
        self._rng = rng
        self._reports = reports

    def register(self, info: PoolInfo) -> Registered:
        """The pool is known and may take turns; with a ticket once, however often it is asked, for an hour."""
        pool, stored = self._register(info)
        settings = config.effective(stored)
        self._bell.set_pace(settings)
        live = leftovers.directory(self._store)
        leftovers.sweep(self._store, live)
        return Registered(pool, self._database_id, settings, live)

    @repeated
    def _register(self, info: PoolInfo) -> tuple[int, dict[str, str]]:
        with writing(self._store):
            now = self._clock()
            pool = None if info.ticket is None else requests.registered(self._store, info.ticket, now)
            if pool is None:
                pool = self._store.add_pool(info, now)
                text = f"{info.name} (pid {info.pid} on {info.host})"
                self._store.event("pool_started", now=now, pool=pool, text=text)
                if info.ticket is not None:
                    requests.register(self._store, info.ticket, pool)
                if info.schedules is not None:
                    declarations.declare(self._store, pool, info, now)
            settings = {key: value for key, value in self._store.ask("config") if key in config.SETTINGS}
            failpoint("register.before_commit")
        return pool, settings

    @repeated
    def beat(self, pools: Sequence[int]) -> set[int]:
        """These pools are alive as of now, whatever their turns. Those among them that were given up meanwhile."""
        if not pools:
            return set()
        with self._store.transaction(marked=False, still_s=STILL_S):  # to beat twice harms nobody
            (_, _, sealed), *_ = self._store.ask("meta")
            sealing.refuse(sealed)
            alive = self._store.ask("beat_pools", pools=json.dumps(list(pools)), now=self._clock())
            failpoint("beat.before_commit")
        return set(pools) - {row[0] for row in alive}

    def pending_work(self) -> PendingWork:
        """What there is to do for pools, without looking at more than a thousand jobs of a lane. Reads only."""
        now = self._clock()
        lanes = Lanes(self._store, now, has_rules=True)
        counted = self._store.ready_counts(KINDS, MOST_READY)
        ready = [(queue, kind, lanes.bounded(queue, kind, waiting)) for queue, kind, waiting in counted]
        cancels: dict[int, set[tuple[int, int]]] = {}
        for pool, id, fence in self._store.ask("stopping"):
            cancels.setdefault(pool, set()).add((id, fence))
        return PendingWork(
            ready=[each for each in ready if each[2]],
            stops={row[0] for row in self._store.ask("asked_to_stop")},
            cancels=cancels,
            due_at=self._store.instants().next_at,
            now=now,
        )

    def pools(self) -> list[LostPool]:
        return self._store.pools()

    def orphaned_pools(self) -> list[int]:
        """Pools that still hold jobs although their row is gone."""
        return [row[0] for row in self._store.ask("held_without_pool")]

    @repeated
    def leave(self, pool: int) -> None:
        """The pool is forgotten; whatever it still held is pending again."""
        with writing(self._store):
            now = self._clock()
            self._store.lock_queues()
            held = [Held(*row) for row in self._store.ask("held_by", pool=pool)]
            trees = Trees(self._store, now, self._rng)
            self._reports.strand(pool, held, trees)
            trees.settle()
            app = declarations.app_of(self._store, pool)
            self._store.ask("remove_pool", pool=pool)
            declarations.judge(self._store, app, now)
            self._store.event("pool_stopped", now=now, pool=pool)
            failpoint("leave.before_commit")
        if held:
            self._store.ring("pool")

    @repeated
    def stop_pools(self, pools: Sequence[int]) -> None:
        """Each of these pools has been asked to finish what it runs and leave."""
        with writing(self._store):
            now = self._clock()
            for pool in pools:
                self._store.ask("request_stop", pool=pool, now=now)
            failpoint("stop.before_commit")
        self._store.ring("pool")

    def failed_siblings(self, pool: int, job: int, fence: int) -> list[Child]:
        """Of a child that this pool runs: the others of its parent that have ended otherwise than well by now.

        The first 100, in the order of spawning. LeaseLost if that run is not the pool's any more: it is nobody else's
        business.
        """
        row = self._store.row(job)
        if row is None or row.pool != pool or fence not in (row.fence, row.fence - 1):
            raise LeaseLost(f"job {job} is not yours any more: it was given up, or it has ended")
        return [] if row.parent_id is None else self._store.failed_children(row.parent_id)

    def reap(self, pool: int, beat: int, reason: str | None = None) -> int:
        """Everything that a lost pool held is pending again or released, at no cost. 0 if it lives after all.

        Busy if its last transaction is still open: of a host that was cut off in the middle of a turn, until the
        server ends that session.
        """
        handed_back = 0
        while (page := self._reap_page(pool, beat, reason)) is not None:
            handed_back += page
            if page < BATCH:
                break
        if handed_back:
            self._store.ring("pool")
            self._store.ring("end")
        leftovers.sweep(self._store, leftovers.directory(self._store))
        return handed_back

    @repeated
    def _reap_page(self, pool: int, beat: int, reason: str | None) -> int | None:
        """How many jobs were handed back; None if the pool lives."""
        store, tail = self._store, f": {reason}" if reason else ""
        with writing(store, wait_s=REAP_WAIT_S, still_s=STILL_S):
            now = self._clock()
            last = store.value("pool_beat", pool=pool)
            if last is not None and last != beat:
                return None
            store.lock_queues()
            ids = [row[0] for row in store.ask("held_page", pool=pool, limit=BATCH)]
            store.lock_trees(ids)
            trees = Trees(store, now, self._rng)
            for row in store.rows(ids).values():
                if row.pool != pool:
                    continue  # another one was faster
                change = decide(row, Signal("pool_lost", error=reason), now, self._rng)
                store.change(row, change, now)
                trees.moved(row)
                if row.state == "cancelled":
                    trees.released(row)
                elif change.ended:
                    trees.ended(row, change.state)
                store.event("interrupted", now=now, job_id=row.id, pool=pool, text=LOST + tail)
            trees.settle()
            failpoint("reap.before_commit")
            if last is not None:
                # First of all the row goes: from now on the pool's own turns are answered "lost".
                store.ask("workers_died", pool=pool, now=now, text=LOST + tail)
                app = declarations.app_of(store, pool)
                store.ask("remove_pool", pool=pool)
                declarations.judge(store, app, now)
                store.event("pool_lost", now=now, pool=pool, text=f"{len(ids)} jobs handed back{tail}")
        return len(ids)
