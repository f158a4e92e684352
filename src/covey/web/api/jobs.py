"""What the endpoints about jobs do: enqueued, found, read, changed, reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...core import bodies
from ...core.model import Child, Spec
from ...core.objects import check_known, spec_of, without_what_is_read_only
from ...core.ports import Backend
from ...core.turn import Caller
from ...core.view import Branch, Filter, LiveOutput
from ...errors import InvalidInput
from ..auth import Identity
from . import loans
from .call import ApiCall, Verb, check_jobs, check_queues, number, seen_job


def _enqueue(engine: Backend, call: ApiCall) -> Any:
    body: bodies.Enqueue = call.body
    return _written(engine, call.guest, body.specs, body.request, body.caller)


def _enqueue_jobs(engine: Backend, call: ApiCall) -> Any:
    body: bodies.EnqueueJobs = call.body
    specs = []
    for place, fields in enumerate(body.jobs):
        try:
            fields, _ = without_what_is_read_only(fields)
            check_known(fields)
            specs.append(spec_of(fields, defaults={}))
        except InvalidInput as error:
            raise InvalidInput(f"jobs[{place}]: {error}") from None
    return _written(engine, call.guest, specs, body.request)


def _written(
    engine: Backend, guest: Identity, specs: Sequence[Spec], request: str | None, caller: Caller | None = None
) -> Any:
    check_queues(guest, [spec.queue_name for spec in specs])
    return engine.enqueue(specs, request=request, caller=caller, token=guest.token, within=guest.queues)


def _tied(act: Callable[[Backend, int, Any], Any]) -> Verb:
    """About a job that ends with its caller, by number."""

    def verb(engine: Backend, call: ApiCall) -> Any:
        job = number(call.names["ref"], "job")
        check_jobs(engine, call.guest, [job])
        return act(engine, job, call.body)

    return verb


def _let_go(engine: Backend, job: int, _: None) -> bodies.Nothing:
    engine.let_go(job)
    return bodies.Nothing()


def _callers(engine: Backend, call: ApiCall) -> Any:
    guest = call.guest
    return [tie for tie in engine.callers() if guest.queues is None or (tie.queue and guest.may_see(tie.queue))]


def _list_jobs(engine: Backend, call: ApiCall) -> Any:
    query: bodies.JobsQuery = call.query
    wanted = Filter(
        states=query.state,
        queue=query.queue,
        task=query.task,
        batch=query.batch,
        before=query.before,
        limit=query.limit,
        query=query.q,
    )
    return _find(engine, call.guest, wanted)


def _jobs(engine: Backend, call: ApiCall) -> Any:
    return _find(engine, call.guest, call.body)


def _find(engine: Backend, guest: Identity, wanted: Filter) -> Any:
    if guest.queues is not None:
        if wanted.queue is None and len(guest.queues) == 1:
            wanted = replace(wanted, queue=guest.queues[0])
        check_queues(guest, None if wanted.queue is None else [wanted.queue])
    return engine.jobs(wanted)


def _changing(change: Callable[[Backend, Any], Any]) -> Verb:
    def verb(engine: Backend, call: ApiCall) -> Any:
        check_jobs(engine, call.guest, call.body.refs)
        return change(engine, call.body)

    return verb


def _about_job(look: Callable[[Backend, str, Any], Any]) -> Verb:
    def verb(engine: Backend, call: ApiCall) -> Any:
        ref = call.names["ref"]
        if call.guest.queues is not None:
            seen_job(engine, call.guest, ref)
        return look(engine, ref, call.query)

    return verb


def _lent(act: Callable[[Backend, int, Any], Any]) -> Verb:
    def verb(engine: Backend, call: ApiCall) -> Any:
        job = number(call.names["ref"], "job")
        if call.guest.queues is not None:
            seen_job(engine, call.guest, job)
        return act(engine, job, call.body)

    return verb


def _spawn(engine: Backend, call: ApiCall) -> bodies.SpawnCount:
    within = call.guest.queues
    check_queues(call.guest, [str(each["queue"]) for each in call.body.jobs if each.get("queue")])
    verb = _lent(lambda engine, job, ask: loans.spawn(engine, job, ask, within))
    spawned: bodies.SpawnCount = verb(engine, call)
    return spawned


def _failed_siblings(engine: Backend, call: ApiCall) -> list[Child]:
    """A sibling may be of another queue: then it is none of the asker's business."""
    job = number(call.names["ref"], "job")
    if call.guest.queues is not None:
        seen_job(engine, call.guest, job)
    found = engine.failed_siblings(call.body.pool, job, call.body.fence)
    if call.guest.queues is None or not found:
        return found
    queues = engine.queues_of([str(child.id) for child in found])
    return [child for child in found if str(child.id) in queues and call.guest.may_see(queues[str(child.id)])]


def _tree(engine: Backend, call: ApiCall) -> Branch:
    """A child may be of another queue than its parent: then it is none of the asker's business."""
    ref = call.names["ref"]
    seen_job(engine, call.guest, ref)
    branch = engine.tree(ref, call.query.limit, call.query.after)
    branch.children = [child for child in branch.children if call.guest.may_see(child.queue)]
    return branch


def _edit(engine: Backend, call: ApiCall) -> Any:
    check_jobs(engine, call.guest, [call.names["ref"]])
    if isinstance(call.body.queue, str):
        check_queues(call.guest, [call.body.queue])
    return engine.edit(call.names["ref"], call.body)


def _output(engine: Backend, ref: str, query: bodies.OutputQuery) -> LiveOutput:
    return engine.output(ref, fence=query.fence, out=query.out, err=query.err)


write_output = _lent(loans.write_output)

VERBS: dict[str, Verb] = {
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
}
