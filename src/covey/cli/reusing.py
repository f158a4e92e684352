"""A server that runs for this queue is found, and its workers are used instead of starting more."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .. import __version__
from ..discovery import Note, found
from ..errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.view import PoolView
    from ..engine.engine import Engine


def find_server(engine: Engine) -> Note | None:
    """The server of this very queue on this host; Refused if what runs there does not fit."""
    running = found(engine.store.dialect.side)
    if running is None:
        return None
    if running.database_id != engine.database_id:
        raise Refused(
            f"the server at {running.url} (pid {running.pid}) serves another queue that was in this place before; "
            "stop it, or pass --no-reuse"
        )
    if running.version != __version__:
        raise Refused(
            f"the server at {running.url} is Covey {running.version}, this is {__version__}; "
            "restart it, or pass --no-reuse"
        )
    return running


def working(engine: Engine, queues: Iterable[str] | None, kinds: Iterable[str]) -> list[PoolView]:
    """Living pools, wherever they are, that take jobs of each of these queues (None: of every queue) and kinds."""
    from ..engine.views import is_alive

    def fits(pool: PoolView) -> bool:
        if not is_alive(pool) or pool.state != "running" or not set(kinds) <= set(pool.kinds):
            return False
        return pool.queues is None or (queues is not None and set(queues) <= set(pool.queues))

    return [pool for pool in engine.pool_views() if fits(pool)]


def reused(engine: Engine, queues: Iterable[str] | None, kinds: Iterable[str]) -> str | None:
    """Who works there already, in words; None if nobody does, or if there is no server."""
    server = find_server(engine)
    if server is None or not (pools := working(engine, queues, kinds)):
        return None
    workers = sum(worker.state != "dead" for pool in pools for worker in pool.workers)
    return (
        f"the server at {server.url} has {workers} workers in {len(pools)} pools for this already; they are used "
        "(--no-reuse starts more)"
    )


def reused_workers(db: str | None, worker: list[str] | None, queue: list[str] | None, app: str | None) -> str | None:
    """The same for what `worker start` was given; None for a queue behind a server, which was asked for by name."""
    from .open_queue import open_queue

    source = open_queue(db, create=True)
    if not hasattr(source, "store"):
        return None
    queues = [each.rpartition("=")[0] for each in worker or ()] or queue
    return reused(cast("Engine", source), queues, ("command", "sync", "async") if app else ("command",))
