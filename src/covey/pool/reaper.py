"""Watches the other pools of the queue: who is gone has its jobs handed back.

On this host a pool is lost when its process is gone; whatever still carries its mark, its zygote included, is killed
first, so that nothing runs twice at a time. Elsewhere it is lost when its beat has not moved for a lease, on our own
monotonic clock: no wall clock decides about leases. With our host's name and another boot it is probably what ran here
before a restart, and a few beats are waited for; but two machines may have one name, and then the other one beats.
Only what we have watched counts: while the store was away nobody could beat, and the first one back must not give up
all the others.

In the same two ways it is seen that a `covey run` is gone whose job shall end with it: that job is cancelled.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Container
from functools import partial

from ..core.ports import Source
from ..core.turn import LostPool, Tie
from ..env import alive, boot, hostname, start_ticks
from ..errors import Busy
from ..log import Log
from ..system import cgroup, process_tree

AWAY_S = 3.0
ORPHANS = 4  # looks, one of which looks for jobs of pools that were struck off
MISSED = 3  # beats that a pool of another boot of this host may have missed
WATCHED_S = 1.0  # of the time between two looks, so much counts at least as watched


class Beats:
    """For how long each beat was seen to stand still, by who has it. Only what was watched counts."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def silent_s(self, who: int, beat: int, since_s: float, lease_s: float) -> float:
        """``since_s``: the time since the look before."""
        last, silent_s = self._seen.get(who, (-1, 0.0))
        silent_s = silent_s + min(since_s, max(WATCHED_S, lease_s / 3)) if beat == last else 0.0
        self._seen[who] = (beat, silent_s)
        return silent_s

    def forget(self, who: int) -> None:
        self._seen.pop(who, None)

    def keep(self, those: Container[int]) -> None:
        self._seen = {who: seen for who, seen in self._seen.items() if who in those}


class Reaper:
    def __init__(self, source: Source, database_id: str, log: Log) -> None:
        self._source, self._database_id, self._log = source, database_id, log
        self._boot = boot()
        self._beats, self._callers = Beats(), Beats()  # of pools; of callers, by their job
        self._looked_at = 0.0
        self._orphans: dict[int, float] = {}  # struck off, but still named by jobs → since when we know
        self._next = 0.0
        self._looks = 0

    def look(self, *, me: int | None, force: bool = False) -> None:
        """Every lost pool but ``me`` has been reaped, and no job waits for a caller who is gone.

        A look that is forced sees at once who of this host is gone; elsewhere only what was watched counts.
        """
        now = time.monotonic()
        if now < self._next and not force:
            return
        self._next = now + self._source.look_s
        pools = self._source.pools()
        since_s, self._looked_at = now - self._looked_at, now
        if since_s > AWAY_S:  # nobody could look, and nobody could be heard
            self._orphans = {pool: since + since_s for pool, since in self._orphans.items()}
        self._look_at_callers(since_s, force=force)
        for pool in pools:
            if pool.id != me and self._is_lost(self._beats, pool.id, since_s, pool):
                with contextlib.suppress(Busy):  # the next look tries again
                    jobs, killed = self.reap(pool)
                    self._log.reaped(pool.id, jobs, killed)
        # Seldom: they wait for a lease anyway, and what rings while a pool looks around waits too.
        if force or self._looks % ORPHANS == 0:
            self._look_for_orphans(now)
        self._looks += 1

    def gone(self, silent: Container[int] = ()) -> list[LostPool]:
        """Pools of this host whose process is gone; and of those that are ``silent``, who ran before its restart."""
        found = self._source.pools()
        return [each for each in found if self._is_gone(each) or (each.id in silent and self._is_of_another_boot(each))]

    def leftovers(self, pool: LostPool) -> list[int]:
        """Living processes that `reap` would kill: what carries the pool's mark, and what is below."""
        if pool.boot != self._boot:
            return []  # its pids mean nothing here
        found = process_tree.marked(f"{self._database_id}:{pool.id}:")
        below = [each for pid in found for each in process_tree.descendants(pid)]
        return [pid for pid in dict.fromkeys([*found, *below]) if start_ticks(pid) is not None]

    def reap(self, pool: LostPool) -> tuple[int, int]:
        """Its processes are gone, then its jobs are handed back: (jobs, processes)."""
        killed = self._end_processes(pool) if pool.boot == self._boot else 0
        jobs = self._source.reap(pool.id, pool.beat)
        self._beats.forget(pool.id)
        return jobs, killed

    def _end_processes(self, pool: LostPool) -> int:
        """Nothing that it started lives on this host; how many had to be killed, as far as we know them."""
        killed = process_tree.kill_marked(f"{self._database_id}:{pool.id}:")
        named = pool.cgroup and os.path.basename(pool.cgroup) == cgroup.name(self._database_id, pool.pid, pool.ticks)
        if pool.cgroup and named and not self._is_in_use(pool):
            cgroup.end(pool.cgroup)
        return killed

    def _is_in_use(self, pool: LostPool) -> bool:
        """Whether the group is a living pool's that goes by another number, because it never heard of this one."""
        if not alive(pool.pid, pool.ticks):
            return False
        return pool.beat == 0 or any(each.cgroup == pool.cgroup and each.id != pool.id for each in self._source.pools())

    def _look_at_callers(self, since_s: float, *, force: bool) -> None:
        """First of all, so that nothing is claimed, or handed back to be claimed, that nobody waits for any more."""
        if self._source.is_served and not force:
            return  # the server watches them
        ties = self._source.callers()
        for tie in ties:
            # A caller of this host may be stopped for as long as he likes: he can be seen to be there.
            lost = self._is_gone if tie.boot == self._boot else partial(self._is_lost, self._callers, tie.job, since_s)
            if tie.is_over or lost(tie):
                with contextlib.suppress(Busy):  # the next look tries again
                    if self._source.abandon(tie.job, tie.beat):
                        self._log.abandoned(tie.job)
        self._callers.keep({tie.job for tie in ties})

    def _look_for_orphans(self, now: float) -> None:
        """Jobs of a pool that was struck off are handed back a lease later: by then it has noticed, or it is gone."""
        orphaned = self._source.orphaned_pools()
        self._orphans = {pool: self._orphans.get(pool, now) for pool in orphaned}
        for pool, since in self._orphans.items():
            if now - since > self._source.settings()["lock_lease_seconds"]:
                killed = process_tree.kill_marked(f"{self._database_id}:{pool}:")
                with contextlib.suppress(Busy):
                    self._log.reaped(pool, self._source.reap(pool, -1), killed)

    def _is_lost(self, beats: Beats, who: int, since_s: float, each: LostPool | Tie) -> bool:
        if self._is_gone(each):
            return True
        silent_s = beats.silent_s(who, each.beat, since_s, each.lease_s)
        patience_s = each.lease_s
        if self._is_of_another_boot(each):
            patience_s = min(patience_s, MISSED * self._source.settings()["heartbeat_seconds"])
        return silent_s > patience_s

    def _is_gone(self, each: LostPool | Tie) -> bool:
        return each.boot == self._boot and not alive(each.pid, each.ticks)

    def _is_of_another_boot(self, each: LostPool | Tie) -> bool:
        """This host has been restarted since, or another one has its name."""
        return each.host == hostname() and _boot_id(each.boot) != _boot_id(self._boot)


def _boot_id(boot: str) -> str:
    """Without the pid namespace: a container is another space on the same boot."""
    return boot.partition(":")[0]
