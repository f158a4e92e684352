"""covey worker stop: the pools of this queue on this host have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import NotFound, Refused
from ..open_queue import open_queue
from ..options import Db
from ..printing import answer, note

if TYPE_CHECKING:
    from ...core.ports import Client
    from ...core.view import PoolView

Names = Annotated[
    list[str] | None, typer.Argument(metavar="POOL...", help="Ids or names; else all on this host.", show_default=False)
]
Now = Annotated[bool, typer.Option("--now", help="Do not wait for running jobs: they are stopped and handed back.")]
Limit = Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="Give up waiting after 90s, 5m …")]


def stop(pools: Names = None, now: Now = False, timeout: Limit = None, db: Db = None) -> None:
    """Ask pools on this host to finish what they run and leave; return when they are gone."""
    from ...core.times import seconds

    limit_s = None if timeout is None else seconds(timeout, "--timeout")
    engine = open_queue(db)
    found = _chosen(engine, pools or [])
    if not found:
        note("no pool of this queue runs on this host")
        return
    engine.stop_pools([pool.id for pool in found])
    for pool in found:
        _signal(pool, now=now)
    _await(engine, found, limit_s)


def _chosen(engine: Client, names: list[str]) -> list[PoolView]:
    """The living pools of this host that are meant."""
    living = [pool for pool in engine.pool_views() if _lives_here(pool)]
    if not names:
        return living
    chosen = []
    for name in names:
        matching = [pool for pool in living if name in (str(pool.id), pool.name)]
        if not matching:
            raise NotFound(f"no pool {name!r} of this queue runs on this host; `covey worker list` shows what there is")
        chosen += matching
    return chosen


def _lives_here(pool: PoolView) -> bool:
    """Only a process with the recorded start ticks is the pool; its pid may be somebody else's by now."""
    from ... import env

    return pool.boot == env.boot() and env.alive(pool.pid, pool.ticks)


def _signal(pool: PoolView, *, now: bool) -> None:
    """The pool has the signal. A pidfd pins the process, so that the check still holds when the signal goes out."""
    import os
    import signal

    try:
        fd = os.pidfd_open(pool.pid)
    except OSError:
        return
    try:
        # A pool that is stopping already would take a second signal for "now".
        if _lives_here(pool) and (now or pool.state != "stopping"):
            signal.pidfd_send_signal(fd, signal.SIGINT)
            if now:  # the second signal is "now"; two of the same might melt into one
                signal.pidfd_send_signal(fd, signal.SIGTERM)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def _await(engine: Client, pools: list[PoolView], limit_s: float | None) -> None:
    """All of them are gone, each said on stdout; Refused when time runs out."""
    import time

    deadline = None if limit_s is None else time.monotonic() + limit_s
    waiting = {pool.id: pool for pool in pools}
    told_at = time.monotonic() + 0.5
    while waiting:
        for pool in [pool for pool in waiting.values() if not _lives_here(pool)]:
            answer(f"stopped {pool.name} (pool {pool.id}, pid {pool.pid})")
            del waiting[pool.id]
        if not waiting:
            return
        if deadline is not None and time.monotonic() > deadline:
            raise Refused(f"{len(waiting)} pools still finish their jobs; wait, or stop them with --now")
        if time.monotonic() > told_at:
            note(_what_for(engine, set(waiting)))
            told_at = time.monotonic() + 5.0
        time.sleep(0.05)


def _what_for(engine: Client, ids: set[int]) -> str:
    from ...core.view import Filter

    held = [job for job in engine.jobs(Filter(states=("processing",), limit=1000)).jobs if job.pool in ids]
    if not held:
        return f"waiting for {len(ids)} pools to leave"
    names = ", ".join(str(job.id) for job in held[:10]) + (" …" if len(held) > 10 else "")
    return f"waiting for {len(held)} running jobs: {names} (--now stops them)"
