"""Why a job is where it is: facts turned into one sentence and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import Struct

from ..core.view import Event, JobView, PoolView, QueueView, Why
from . import advice as advise
from . import health

NAMED = 5  # how many other jobs a reason names


class Kin(Struct, frozen=True):
    """Other jobs that this one waits for."""

    children: Sequence[int] = ()  # unfinished ones
    before: int | None = None  # a serial child: who comes first
    roots: Sequence[tuple[int, str | None]] = ()  # an uncle: (root, how it ended or None)
    flight: int | None = None  # who runs, or is to run, what this job would
    lane_of: int | None = None  # a serial queue: whose lane it is, if it is another tree's
    running: int = 0  # a limited queue: how many it runs now


class Facts(Struct, frozen=True):
    """What is known about the job and its surroundings."""

    job: JobView
    queue: QueueView | None
    pools: Sequence[PoolView]
    ahead: int  # how many come before it
    now: int
    kin: Kin
    uncached: str | None = None  # why its result was not kept


Reason = tuple[str, list[str]]  # and what to do about it


def explain(facts: Facts, events: Sequence[Event]) -> Why:
    """The reason for the job's state, in words."""
    job = facts.job
    reason, advice = REASONS[job.state](facts)
    last = next((event.text for event in events if event.kind == "interrupted"), None)
    if job.state == "pending" and last:
        reason += f"; it ran before and was interrupted: {last}"
    told = {
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "interruptions": job.interruptions,
        "ahead": facts.ahead if job.state == "pending" else None,
        "events": [f"{event.at} {event.kind}" + (f": {event.text}" if event.text else "") for event in events],
    }
    return Why(id=job.id, state=job.state, reason=reason, advice=advice, facts=told)


def _scheduled(facts: Facts) -> Reason:
    job = facts.job
    return f"it may not start before {job.run_at} ({_until(job.run_at, facts.now)})", [
        f"covey edit {job.id} --run-at now"
    ]


def _processing(facts: Facts) -> Reason:
    job = facts.job
    if job.worker is None:
        return f"pool {job.pool} has claimed it and is about to start it", []
    return f"it runs on {job.worker} of pool {job.pool} since {job.started_at}", [f"covey logs -f {job.id}"]


def _failed(facts: Facts) -> Reason:
    job = facts.job
    reason = (
        f"attempt {job.attempts} of {job.max_attempts} failed: {job.error}; "
        f"the next one starts at {job.retry_at} ({_until(job.retry_at, facts.now)})"
    )
    return reason, [f"covey logs {job.id}", f"covey retry {job.id}"]


def _dead(facts: Facts) -> Reason:
    job = facts.job
    tries = f"after {job.attempts} of {job.max_attempts} attempts" if job.attempts else "without an attempt left"
    return f"it was given up {tries}: {job.error}", [f"covey logs {job.id}", f"covey retry {job.id}"]


def _cancelled(facts: Facts) -> Reason:
    job, pools = facts.job, facts.pools
    if job.pool is None:
        return (job.error or "somebody cancelled it"), [f"covey retry {job.id}"]
    if any(pool.id == job.pool and not health.is_alive(pool) for pool in pools):
        reaps = [] if any(health.is_alive(pool) for pool in pools) else ["covey worker reap"]
        return f"it was cancelled and pool {job.pool}, which has to end its processes, is gone", reaps
    return f"it was cancelled and pool {job.pool} is still stopping its processes", []


def _completed(facts: Facts) -> Reason:
    job = facts.job
    text = f"it completed at {job.finished_at}"
    if job.cached_from is not None:
        text += f", cached from job {job.cached_from}: nothing had to run"
    elif facts.uncached is not None:
        text += f"; {facts.uncached}"
    return text, [f"covey logs {job.id}"]


def _waiting(facts: Facts) -> Reason:
    count, named = facts.job.children, facts.kin.children[:NAMED]
    more = " …" if count.unfinished > len(named) else ""
    names = ", ".join(map(str, named)) + more
    return f"it waits for children {names} ({count.ended} of {count.total} have ended)", [f"covey tree {facts.job.id}"]


def _blocked(facts: Facts) -> Reason:
    kin = facts.kin
    if kin.flight is not None:
        reason = f"job {kin.flight} is at the same work: this one has its result, or runs after it"
        return reason, [f"covey why {kin.flight}"]
    if kin.before is not None:
        return f"it waits for its turn: job {kin.before} comes before it", [f"covey why {kin.before}"]
    still = [root for root, outcome in kin.roots if outcome is None]
    if still:
        named = ", ".join(map(str, still[:NAMED])) + (" …" if len(still) > NAMED else "")
        word = "has" if len(still) == 1 else "have"
        return f"blocked until root {named} {word} ended", [f"covey why {still[0]}"]
    bad = [root for root, outcome in kin.roots if outcome == "bad"][:NAMED]
    named = ", ".join(f"root {root} is dead" for root in bad) or "nothing is left to wait for"
    advice = [*(f"covey retry {root}" for root in bad), f"covey cancel {facts.job.id}"]
    return f"blocked for ever, because nothing that it waits for completed: {named}", advice


def _pending(facts: Facts) -> Reason:
    return _held_back(facts) or _without_worker(facts) or _in_line(facts)


def _held_back(facts: Facts) -> Reason | None:
    """What its queue's rules have against it."""
    queue, kin = facts.queue, facts.kin
    if queue is None:
        return None
    if queue.paused:
        until = f" until {queue.resume_at}" if queue.resume_at else ""
        return f"its queue {queue.name!r} is paused{until}", [f"covey queue resume {queue.name}"]
    if kin.lane_of is not None:
        reason = f"its queue {queue.name!r} runs one tree at a time, and the lane belongs to {kin.lane_of}"
        return reason, [f"covey why {kin.lane_of}"]
    if queue.concurrency is not None and kin.running >= queue.concurrency:
        reason = f"its queue {queue.name!r} runs at most {queue.concurrency} at a time, and so many run now"
        return reason, [f"covey list --state processing --queue {queue.name}"]
    return None


def _without_worker(facts: Facts) -> Reason | None:
    """Why none of the pools could run it now."""
    job, pools = facts.job, facts.pools
    serving = [pool for pool in pools if health.serves(pool, job.queue) and health.takes_jobs(pool)]
    if not serving:
        start = advise.start(queue=job.queue, kind=job.kind, pools=pools, task=job.task)
        return f"no worker serves the queue {job.queue!r}", [start]
    of_kind = [pool for pool in serving if job.kind in pool.kinds]
    if not of_kind:
        what = "commands" if job.kind == "command" else f"{job.task!r}, a Python task"
        start = advise.start(kind=job.kind, pools=pools, task=job.task)
        return f"no worker of the queue {job.queue!r} can run {what}", [start]
    able = _able(facts, of_kind)
    if not able:
        return _cannot_start(job, of_kind[-1])
    if all(health.is_frozen(pool) for pool in able):
        silent = able[-1]
        reason = f"pool {silent.id} (pid {silent.pid}) is frozen or cannot reach the database"
        return f"{reason}: silent for {silent.beat_age_s:.0f} s", [f"kill -CONT {silent.pid}", "covey status"]
    return _none_ready(job, able)


def _able(facts: Facts, pools: Sequence[PoolView]) -> list[PoolView]:
    job = facts.job
    return [pool for pool in pools if health.takes_jobs(pool) and health.can_run(pool, job.queue, job.kind)]


def _in_line(facts: Facts) -> Reason:
    job, ahead = facts.job, facts.ahead
    place = "it is next in line" if not ahead else f"{ahead:,} jobs are ahead of it in {job.queue!r}"
    workers = sum(health.places(pool, job.queue) for pool in _able(facts, facts.pools))
    return f"{place}; {workers} workers serve that queue", ["covey worker list"]


def _none_ready(job: JobView, pools: Sequence[PoolView]) -> Reason | None:
    """What stands in the way where workers for the job were tried and none of them could start so far."""
    fallen = []
    for pool in pools:
        workers = health.lane_of(pool, job.queue, job.kind)
        dead = [worker for worker in workers if worker.state == "dead"]
        if not dead or any(worker.state not in ("dead", "starting") for worker in workers):
            return None
        fallen += dead
    if not fallen:
        return None
    last = health.latest(fallen)
    reason = f"no {job.kind} worker could start so far in pool {last.pool}, last {last.name}: {last.error}"
    return reason, [f"covey worker events {last.pool}", "mend it; new workers are tried all the time"]


def _cannot_start(job: JobView, pool: PoolView) -> Reason:
    what = health.title(pool, job.queue, job.kind)
    log = f"; log: {pool.log}" if pool.log else ""
    advice = [f"covey worker events {pool.id}", "mend it and restart the pool"]
    return f"no {what} worker can start in pool {pool.id}: {pool.given_up[what]}{log}", advice


def _until(at: str | None, now: int) -> str:
    if at is None:
        return "now"
    left = datetime.fromisoformat(at).timestamp() - now / 1e6
    return "due now" if left <= 0 else f"in {left:.0f} s"


REASONS: dict[str, Callable[[Facts], Reason]] = {
    "scheduled": _scheduled,
    "pending": _pending,
    "processing": _processing,
    "failed": _failed,
    "dead": _dead,
    "cancelled": _cancelled,
    "completed": _completed,
    "waiting": _waiting,
    "blocked": _blocked,
}
