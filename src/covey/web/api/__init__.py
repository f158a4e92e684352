"""What each endpoint does: one function a verb. Those that wait are coroutines, all others run at the desk.

call    one request, understood; what a token for some queues only may ask
jobs    enqueued, found, read, changed
pools   register, take turns, wait, leave; what is known of pools
queues  how queues are worked; settings
cache   what the cache keeps, and why a job was not in it
loans   one job at a time, for workers in any language
metrics  what Prometheus asks for
health  how the server is
schedules  schedules, as far as a token may see their jobs' queue
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ... import __version__
from ...core import bodies
from ...core import endpoints as wire
from ...core.ports import Backend
from ..engine_threads import EngineThreads
from ..notifier import FEW, Notifier
from ..readers import Readers
from ..turn_batcher import TurnBatcher
from . import cache, jobs, metrics, pools, queues, schedules
from .call import ApiCall, Verb, check_jobs, check_queues
from .loans import Lending


class Verbs:
    """The endpoints of one server."""

    def __init__(self, desk: EngineThreads, readers: Readers, turner: TurnBatcher, hub: Notifier) -> None:
        self._desk, self._readers, self._hub = desk, readers, hub
        self._lending = Lending(desk, hub)
        self._coroutines: dict[str, Callable[[ApiCall], Awaitable[Any]]] = {
            **pools.ServedPools(desk, turner, hub).answers,
            "claim": self._claim,
            "wait_for": self._wait_for,
        }

    async def answer(self, endpoint: wire.Endpoint, call: ApiCall) -> Any:
        if coroutine := self._coroutines.get(endpoint.name):
            return await coroutine(call)
        verb = VERBS[endpoint.name]
        desk = self._readers if endpoint.looks else self._desk
        return await desk.ask(lambda engine: verb(engine, call))

    async def _claim(self, call: ApiCall) -> bodies.Claimed:
        ask: bodies.ClaimAsk = call.body
        check_queues(call.guest, ask.queues)
        return bodies.Claimed(await self._lending.claim(ask, call.query.wait, call.admit))

    async def _wait_for(self, call: ApiCall) -> bodies.Ended:
        body: bodies.WaitFor = call.body
        open_ids = list(dict.fromkeys(body.ids))
        desk = self._desk if len(open_ids) <= FEW else self._readers
        if call.guest.queues is not None:
            await desk.ask(lambda engine: check_jobs(engine, call.guest, open_ids))
        deadline = time.monotonic() + body.timeout_s
        while True:
            with self._hub.watch(open_ids) as rung:
                await call.admit()
                ended = await desk.ask(lambda engine, ids=open_ids: engine.ended(ids))  # type: ignore[misc]
                open_ids = [id for id in open_ids if id not in ended]
                if not open_ids or (body.any_of and ended):
                    return bodies.Ended(True)
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._hub.dismissed:
                    return bodies.Ended(False)
                await asyncio.wait([rung], timeout=left_s)


def _server(engine: Backend, call: ApiCall) -> bodies.ServerInfo:
    return bodies.ServerInfo(engine.database_id, __version__, wire.PROTOCOL, os.getpid(), engine.clock())


VERBS: dict[str, Verb] = {
    "server": _server,
    "metrics": metrics.metrics,
    **jobs.VERBS,
    **pools.VERBS,
    **queues.VERBS,
    **schedules.VERBS,
    **cache.VERBS,
}
