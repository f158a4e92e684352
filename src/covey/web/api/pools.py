"""What the endpoints for pools do: register, take turns, wait, leave; and those about pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec.structs import replace

from ... import env
from ...core import bodies
from ...core.model import Report
from ...core.ports import Backend
from ...core.turn import Registered
from ...errors import Forbidden, InvalidInput, NotFound
from ..auth import Identity
from ..bounds import check_pool, check_turn
from ..engine_threads import EngineThreads
from ..notifier import Notifier
from ..turn_batcher import TurnBatcher
from .call import ApiCall, Verb, check_queues, number
from .jobs import write_output

MOST_SHOWN = 10_000  # runs whose live files are remembered


class ServedPools:
    """What a server remembers of the pools that work through it."""

    def __init__(self, desk: EngineThreads, turner: TurnBatcher, hub: Notifier) -> None:
        self._desk, self._turner, self._hub = desk, turner, hub
        self._queues: dict[int, tuple[str, ...] | None] = {}  # pools that a token for some queues only has registered
        self._shown: set[tuple[int, int]] = set()  # runs elsewhere that have sent output
        self.answers: dict[str, Callable[[ApiCall], Awaitable[Any]]] = {
            "register": self._register,
            "turn": self._turn,
            "wait": self._wait,
            "leave": self._leave,
            "write_output": self._write_output,
        }

    async def _register(self, call: ApiCall) -> Registered:
        info = check_pool(call.body)
        check_queues(call.guest, info.queues)
        check_queues(call.guest, info.types or ())
        info = replace(info, within=call.guest.queues)
        registered = await self._desk.ask(lambda engine: engine.register(info))
        if call.guest.queues is not None:
            self._queues[registered.pool] = info.queues
        # The directory for live output is one of this host.
        return registered if info.boot == env.boot() else replace(registered, live="")

    async def _turn(self, call: ApiCall) -> bodies.Answered:
        turn = check_turn(call.body)
        if turn.pool != call.pool:
            raise InvalidInput(f"the turn of pool {turn.pool} was sent as one of pool {call.pool}")
        if call.guest.queues is not None:
            await self._check_pool(call)
            for want in turn.wants:
                check_queues(call.guest, want.queues)
            turn.reports = [_within(call.guest, report) for report in turn.reports]
        seen = self._hub.seen  # before the turn looks: what rings from now on it may not see
        self._hub.awake(turn.pool, turn.number)
        self._hub.heard(turn.pool)
        reply = await self._turner.turn(turn)
        if ended := [(report.id, report.fence) for report in turn.reports if (report.id, report.fence) in self._shown]:
            self._shown.difference_update(ended)
            await self._desk.ask(lambda engine: _hide(engine, ended))
        if reply.next_due_at is not None:
            self._hub.expect((reply.next_due_at - reply.now) / 1e6)
        return bodies.Answered(reply, seen)

    async def _wait(self, call: ApiCall) -> bodies.Woken:
        body: bodies.Wait = call.body
        await self._check_pool(call)
        queues = call.guest.queues if body.queues is None else body.queues
        check_queues(call.guest, queues)
        changed = await self._hub.wait(call.pool, queues, body.kinds, body.timeout_s, body.seen, body.turn)
        await call.admit()
        return bodies.Woken(changed, self._hub.seen)

    async def _leave(self, call: ApiCall) -> bodies.Nothing:
        await self._check_pool(call)
        self._hub.left(call.pool)
        await self._desk.ask(lambda engine: engine.leave(call.pool))
        self._queues.pop(call.pool, None)
        return bodies.Nothing()

    async def _check_pool(self, call: ApiCall) -> None:
        """A token for some queues only speaks for pools of these queues only."""
        if call.guest.queues is None:
            return
        if call.pool not in self._queues:
            views = await self._desk.ask(lambda engine: engine.pool_views())
            found = next((view for view in views if view.id == call.pool), None)
            if found is None:
                return  # it is lost, and will be told so
            self._queues[call.pool] = None if found.queues is None else tuple(found.queues)
        queues = self._queues[call.pool]
        if queues is None or any(queue not in call.guest.queues for queue in queues):
            allowed = ", ".join(call.guest.queues)
            raise Forbidden(f"this token is for {allowed} only; pool {call.pool} works for others too")

    async def _write_output(self, call: ApiCall) -> bodies.Nothing:
        await self._desk.ask(lambda engine: write_output(engine, call))
        if len(self._shown) >= MOST_SHOWN:
            self._shown.clear()  # their files go with the next sweep
        self._shown.add((number(call.names["ref"], "job"), call.body.fence))
        return bodies.Nothing()


def _within(guest: Identity, report: Report) -> Report:
    """The report, unless it spawns where its pool may not: then its job has failed for that. Refused with its whole
    turn it would come again for ever, and nothing else of that pool would be heard."""
    if not report.spawned:
        return report
    try:
        check_queues(guest, [spawn.spec.queue for spawn in report.spawned if spawn.spec.queue is not None])
    except Forbidden as error:
        why = f"what it spawned was refused: {error}"
        return replace(report, outcome="abort", error=why, result=None, spawned=None)
    return replace(report, spawned=[replace(spawn, within=guest.queues) for spawn in report.spawned])


def _hide(engine: Backend, runs: Iterable[tuple[int, int]]) -> None:
    for run in runs:
        engine.hide_output(*run)


def _pool_events(engine: Backend, call: ApiCall) -> Any:
    query: bodies.PoolEventsQuery = call.query
    return engine.pool_events(query.pool, after=query.after, limit=query.limit)


def _stop_pools(engine: Backend, call: ApiCall) -> bodies.Nothing:
    known = {pool.id for pool in engine.pools()}
    if strange := [pool for pool in call.body.pools if pool not in known]:
        raise NotFound(f"no pool {strange[0]}; `covey worker list` shows what there is")
    engine.stop_pools(call.body.pools)
    return bodies.Nothing()


def _reap(engine: Backend, call: ApiCall) -> bodies.Reaped:
    return bodies.Reaped(engine.reap(call.pool, call.body.beat, call.body.reason))


VERBS: dict[str, Verb] = {
    # Who works for some queues only judges nobody: other pools' hosts are none of its business, and the server watches.
    "lost_pools": lambda engine, call: engine.pools() if call.guest.queues is None else [],
    "orphaned_pools": lambda engine, call: engine.orphaned_pools() if call.guest.queues is None else [],
    "reap": _reap,
    "pool_views": lambda engine, call: engine.pool_views(),
    "pool_events": _pool_events,
    "stop_pools": _stop_pools,
}
