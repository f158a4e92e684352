"""What each endpoint does: one function a verb. Those that wait are coroutines, all others run at the desk.

health  how the server is
loans   One job at a time, for workers in any language
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ... import __version__, env
from ...core import bodies
from ...core import endpoints as wire
from ...core.model import Child, Report, Spec
from ...core.objects import FIELDS, spec_of
from ...core.turn import Caller, Registered
from ...core.view import Branch, Filter, JobView, LiveOutput
from ...engine.engine import Engine
from ...errors import Forbidden, InvalidInput, NotFound
from ..auth import Guest
from ..bounds import check_pool, check_turn
from ..engine_threads import Desk
from ..notifier import FEW, Hub
from ..readers import Readers
from ..turn_batcher import Turner
from . import loans
from .loans import Lending

MOST_SHOWN = 10_000  # runs whose live files are remembered


class Call(Struct):
    """One request, understood."""

    guest: Guest
    names: dict[str, str]
    query: Any
    body: Any
    admit: Callable[[], Awaitable[Guest]]  # whoever has waited must still be somebody who may

    @property
    def pool(self) -> int:
        return number(self.names["pool"], "pool")


Verb = Callable[[Engine, Call], Any]


def number(text: str, what: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise NotFound(f"no {what} {text[:40]!r}")
    return int(text)


class Verbs:
    """The endpoints of one server."""

    def __init__(self, desk: Desk, readers: Readers, turner: Turner, hub: Hub) -> None:
        self._desk, self._readers, self._turner, self._hub = desk, readers, turner, hub
        self._lending = Lending(desk, hub)
        self._queues: dict[int, tuple[str, ...] | None] = {}  # pools that a token for some queues only has registered
        self._shown: set[tuple[int, int]] = set()  # runs elsewhere that have sent output
        self._coroutines: dict[str, Callable[[Call], Awaitable[Any]]] = {
            "register": self._register,
            "turn": self._turn,
            "wait": self._wait,
            "leave": self._leave,
            "claim": self._claim,
            "wait_for": self._wait_for,
            "write_output": self._write_output,
        }

    async def answer(self, endpoint: wire.Endpoint, call: Call) -> Any:
        if coroutine := self._coroutines.get(endpoint.name):
            return await coroutine(call)
        verb = VERBS[endpoint.name]
        desk = self._readers if endpoint.looks else self._desk
        return await desk.ask(lambda engine: verb(engine, call))

    # ── pools ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _register(self, call: Call) -> Registered:
        info = check_pool(call.body)
        _check_queues(call.guest, info.queues)
        _check_queues(call.guest, info.types or ())
        registered = await self._desk.ask(lambda engine: engine.register(info))
        if call.guest.queues is not None:
            self._queues[registered.pool] = info.queues
        # The directory for live output is one of this host.
        return registered if info.boot == env.boot() else replace(registered, live="")

    async def _turn(self, call: Call) -> bodies.Answered:
        turn = check_turn(call.body)
        if turn.pool != call.pool:
            raise InvalidInput(f"the turn of pool {turn.pool} was sent as one of pool {call.pool}")
        if call.guest.queues is not None:
            await self._check_pool(call)
            for want in turn.wants:
                _check_queues(call.guest, want.queues)
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

    async def _wait(self, call: Call) -> bodies.Woken:
        body: bodies.Wait = call.body
        await self._check_pool(call)
        queues = call.guest.queues if body.queues is None else body.queues
        _check_queues(call.guest, queues)
        changed = await self._hub.wait(call.pool, queues, body.kinds, body.timeout_s, body.seen, body.turn)
        await call.admit()
        return bodies.Woken(changed, self._hub.seen)

    async def _leave(self, call: Call) -> bodies.Nothing:
        await self._check_pool(call)
        self._hub.left(call.pool)
        await self._desk.ask(lambda engine: engine.leave(call.pool))
        self._queues.pop(call.pool, None)
        return bodies.Nothing()

    async def _check_pool(self, call: Call) -> None:
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

    # ── one job at a time ───────────────────────────────────────────────────────────────────────────────────────────

    async def _claim(self, call: Call) -> bodies.Claimed:
        ask: bodies.ClaimAsk = call.body
        _check_queues(call.guest, ask.queues)
        return bodies.Claimed(await self._lending.claim(ask, call.query.wait, call.admit))

    async def _write_output(self, call: Call) -> bodies.Nothing:
        await self._desk.ask(lambda engine: _write_output(engine, call))
        if len(self._shown) >= MOST_SHOWN:
            self._shown.clear()  # their files go with the next sweep
        self._shown.add((number(call.names["ref"], "job"), call.body.fence))
        return bodies.Nothing()

    # ── waiting for jobs ────────────────────────────────────────────────────────────────────────────────────────────

    async def _wait_for(self, call: Call) -> bodies.Ended:
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


# ── queues that a token allows ──────────────────────────────────────────────────────────────────────────────────────


def _check_queues(guest: Guest, queues: Iterable[str] | None) -> None:
    if guest.queues is None:
        return
    allowed = ", ".join(guest.queues)
    if queues is None:
        raise Forbidden(f"this token is for {allowed} only; name the queues that are wanted")
    if strange := [queue for queue in queues if queue not in guest.queues]:
        raise Forbidden(f"this token is for {allowed} only, not for {strange[0]}")


def _within(guest: Guest, report: Report) -> Report:
    """The report, unless it spawns where its pool may not: then its job has failed for that. Refused with its whole
    turn it would come again for ever, and nothing else of that pool would be heard."""
    if not report.spawned:
        return report
    try:
        _check_queues(guest, [spawn.queue for spawn in report.spawned if spawn.queue is not None])
    except Forbidden as error:
        why = f"what it spawned was refused: {error}"
        return replace(report, outcome="abort", error=why, result=None, spawned=None)
    return replace(report, spawned=[replace(spawn, within=guest.queues) for spawn in report.spawned])


def check_jobs(engine: Engine, guest: Guest, refs: Sequence[bodies.Ref]) -> None:
    """All of them are the asker's business; else it is as if there were none."""
    if guest.queues is None:
        return
    wanted = list(dict.fromkeys(map(str, refs)))
    found = engine.queues_of(wanted)
    if strange := [ref for ref in wanted if ref not in found or not guest.may_see(found[ref])]:
        raise NotFound(f"no job {strange[0]!r}; `covey list` shows what there is")


def seen_job(engine: Engine, guest: Guest, ref: bodies.Ref) -> JobView:
    """The job, unless it is none of the asker's business: then it is as if there were none."""
    if guest.queues is not None:
        check_jobs(engine, guest, [ref])  # in the same words, whether there is none or another's
    return engine.job(ref)


# ── the verbs that only ask the engine ──────────────────────────────────────────────────────────────────────────────


def _server(engine: Engine, call: Call) -> bodies.ServerInfo:
    return bodies.ServerInfo(engine.database_id, __version__, wire.PROTOCOL, os.getpid(), engine.clock())


def _enqueue(engine: Engine, call: Call) -> Any:
    body: bodies.Enqueue = call.body
    return _written(engine, call.guest, body.specs, body.request, body.caller)


def _enqueue_jobs(engine: Engine, call: Call) -> Any:
    body: bodies.EnqueueJobs = call.body
    settings = engine.settings()
    specs = []
    for place, fields in enumerate(body.jobs):
        try:
            if unknown := [name for name in fields if name not in FIELDS]:
                raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(FIELDS)}")
            specs.append(spec_of(fields, settings=settings, defaults={}))
        except InvalidInput as error:
            raise InvalidInput(f"jobs[{place}]: {error}") from None
    return _written(engine, call.guest, specs, body.request)


def _written(
    engine: Engine, guest: Guest, specs: Sequence[Spec], request: str | None, caller: Caller | None = None
) -> Any:
    _check_queues(guest, [spec.queue for spec in specs])
    return engine.enqueue(specs, request=request, caller=caller, token=guest.token, within=guest.queues)


def _tied(act: Callable[[Engine, int, Any], Any]) -> Verb:
    """About a job that ends with its caller, by number."""

    def verb(engine: Engine, call: Call) -> Any:
        job = number(call.names["ref"], "job")
        check_jobs(engine, call.guest, [job])
        return act(engine, job, call.body)

    return verb


def _let_go(engine: Engine, job: int, _: None) -> bodies.Nothing:
    engine.let_go(job)
    return bodies.Nothing()


def _callers(engine: Engine, call: Call) -> Any:
    guest = call.guest
    return [tie for tie in engine.callers() if guest.queues is None or (tie.queue and guest.may_see(tie.queue))]


def _list_jobs(engine: Engine, call: Call) -> Any:
    query: bodies.JobsQuery = call.query
    wanted = Filter(
        states=query.state,
        queue=query.queue,
        task=query.task,
        batch=query.batch,
        before=query.before,
        limit=query.limit,
    )
    return _find(engine, call.guest, wanted)


def _jobs(engine: Engine, call: Call) -> Any:
    return _find(engine, call.guest, call.body)


def _find(engine: Engine, guest: Guest, wanted: Filter) -> Any:
    if guest.queues is not None:
        if wanted.queue is None and len(guest.queues) == 1:
            wanted = replace(wanted, queue=guest.queues[0])
        _check_queues(guest, None if wanted.queue is None else [wanted.queue])
    return engine.jobs(wanted)


def _changing(change: Callable[[Engine, Any], Any]) -> Verb:
    def verb(engine: Engine, call: Call) -> Any:
        check_jobs(engine, call.guest, call.body.refs)
        return change(engine, call.body)

    return verb


def _about_job(look: Callable[[Engine, str, Any], Any]) -> Verb:
    def verb(engine: Engine, call: Call) -> Any:
        ref = call.names["ref"]
        if call.guest.queues is not None:
            seen_job(engine, call.guest, ref)
        return look(engine, ref, call.query)

    return verb


def _lent(act: Callable[[Engine, int, Any], Any]) -> Verb:
    def verb(engine: Engine, call: Call) -> Any:
        job = number(call.names["ref"], "job")
        if call.guest.queues is not None:
            seen_job(engine, call.guest, job)
        return act(engine, job, call.body)

    return verb


def _spawn(engine: Engine, call: Call) -> bodies.Spawned:
    within = call.guest.queues
    _check_queues(call.guest, [str(each["queue"]) for each in call.body.jobs if each.get("queue")])
    verb = _lent(lambda engine, job, ask: loans.spawn(engine, job, ask, within))
    spawned: bodies.Spawned = verb(engine, call)
    return spawned


def _failed_siblings(engine: Engine, call: Call) -> list[Child]:
    """A sibling may be of another queue: then it is none of the asker's business."""
    job = number(call.names["ref"], "job")
    if call.guest.queues is not None:
        seen_job(engine, call.guest, job)
    found = engine.failed_siblings(call.body.pool, job, call.body.fence)
    if call.guest.queues is None or not found:
        return found
    queues = engine.queues_of([str(child.id) for child in found])
    return [child for child in found if str(child.id) in queues and call.guest.may_see(queues[str(child.id)])]


def _tree(engine: Engine, call: Call) -> Branch:
    """A child may be of another queue than its parent: then it is none of the asker's business."""
    ref = call.names["ref"]
    seen_job(engine, call.guest, ref)
    branch = engine.tree(ref, call.query.limit, call.query.after)
    branch.children = [child for child in branch.children if call.guest.may_see(child.queue)]
    return branch


def _edit(engine: Engine, call: Call) -> Any:
    check_jobs(engine, call.guest, [call.names["ref"]])
    if isinstance(call.body.queue, str):
        _check_queues(call.guest, [call.body.queue])
    return engine.edit(call.names["ref"], call.body)


def _output(engine: Engine, ref: str, query: bodies.OutputQuery) -> LiveOutput:
    return engine.output(ref, fence=query.fence, out=query.out, err=query.err)


def _queues(engine: Engine, call: Call) -> Any:
    return [view for view in engine.queues() if call.guest.may_see(view.name)]


def _set_queue(engine: Engine, call: Call) -> bodies.Nothing:
    rules: bodies.QueueRules = call.body
    queue = call.names["queue"]
    _check_queues(call.guest, [queue])
    engine.set_queue(queue, serial=rules.serial, concurrency=rules.concurrency, max_depth=rules.max_depth)
    return bodies.Nothing()


def _pause(engine: Engine, call: Call) -> bodies.Nothing:
    _check_queues(call.guest, [call.names["queue"]])
    engine.pause(call.names["queue"], call.body.for_s)
    return bodies.Nothing()


def _resume(engine: Engine, call: Call) -> bodies.Nothing:
    _check_queues(call.guest, [call.names["queue"]])
    engine.resume(call.names["queue"])
    return bodies.Nothing()


def _pool_events(engine: Engine, call: Call) -> Any:
    query: bodies.PoolEventsQuery = call.query
    return engine.pool_events(query.pool, after=query.after, limit=query.limit)


def _stop_pools(engine: Engine, call: Call) -> bodies.Nothing:
    known = {pool.id for pool in engine.pools()}
    if strange := [pool for pool in call.body.pools if pool not in known]:
        raise NotFound(f"no pool {strange[0]}; `covey worker list` shows what there is")
    engine.stop_pools(call.body.pools)
    return bodies.Nothing()


def _reap(engine: Engine, call: Call) -> bodies.Reaped:
    return bodies.Reaped(engine.reap(call.pool, call.body.beat, call.body.reason))


def _set_setting(engine: Engine, call: Call) -> bodies.SettingValue:
    return bodies.SettingValue(*engine.set_setting(call.names["name"], call.body.value))


def _unset_setting(engine: Engine, call: Call) -> bodies.SettingValue:
    name = engine.unset_setting(call.names["name"])
    return bodies.SettingValue(name, engine.settings()[name])


def _hide(engine: Engine, runs: Iterable[tuple[int, int]]) -> None:
    for run in runs:
        engine.hide_output(*run)


_write_output = _lent(loans.write_output)

VERBS: dict[str, Verb] = {
    "server": _server,
    # Who works for some queues only judges nobody: other pools' hosts are none of its business, and the server watches.
    "lost_pools": lambda engine, call: engine.pools() if call.guest.queues is None else [],
    "orphaned_pools": lambda engine, call: engine.orphaned_pools() if call.guest.queues is None else [],
    "reap": _reap,
    "callers": _callers,
    "abandon": _tied(lambda engine, job, body: bodies.Abandoned(engine.abandon(job, body.beat))),
    "still_here": _tied(lambda engine, job, _: bodies.Tied(engine.still_here(job))),
    "let_go": _tied(_let_go),
    "heartbeat": _lent(loans.heartbeat),
    "release": _lent(loans.release),
    "complete": _lent(loans.complete),
    "fail": _lent(loans.fail),
    "spawn": _spawn,
    "failed_siblings": _failed_siblings,
    "enqueue": _enqueue,
    "enqueue_jobs": _enqueue_jobs,
    "list_jobs": _list_jobs,
    "jobs": _jobs,
    "cancel": _changing(lambda engine, body: engine.cancel(body.refs)),
    "retry": _changing(lambda engine, body: engine.retry(body.refs, again=body.again, all=body.all)),
    "remove": _changing(lambda engine, body: engine.remove(body.refs, force=body.force)),
    "job": _about_job(lambda engine, ref, _: engine.job(ref)),
    "edit": _edit,
    "history": _about_job(lambda engine, ref, _: engine.history(ref)),
    "output": _about_job(_output),
    "why": _about_job(lambda engine, ref, _: engine.why(ref)),
    "events": _about_job(lambda engine, ref, query: engine.events(ref, query.limit)),
    "tree": _tree,
    "all_events": lambda engine, call: engine.events(None, call.query.limit),
    "status": lambda engine, call: engine.status(),
    "queues": _queues,
    "set_queue": _set_queue,
    "pause": _pause,
    "resume": _resume,
    "pool_views": lambda engine, call: engine.pool_views(),
    "pool_events": _pool_events,
    "stop_pools": _stop_pools,
    "settings": lambda engine, call: bodies.Settings(engine.settings(), engine.stored_settings()),
    "set_setting": _set_setting,
    "unset_setting": _unset_setting,
}
