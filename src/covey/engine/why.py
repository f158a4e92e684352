"""Why a job is where it is: facts turned into one sentence and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from ..core.view import Attempt, Event, JobView, PoolView, QueueView, Why
from . import advice as advise
from . import health

NAMED = 5  # how many other jobs a reason names


class Kin(Struct, frozen=True):
    """Other jobs that this one waits for."""

    children: Sequence[int] = ()  # unfinished ones
    before: int | None = None  # a serial child: who comes first
    roots: Sequence[tuple[int, str | None]] = ()  # an uncle: (root, how it ended or None)
    lane_of: int | None = None  # a serial queue: whose lane it is, if it is another tree's
    running: int = 0  # a limited queue: how many it runs now


def explain(
    job: JobView,
    history: Sequence[Attempt],
    queue: QueueView | None,
    pools: Sequence[PoolView],
    events: Sequence[Event],
    ahead: int,
    now: int,
    kin: Kin,
) -> Why:
    """The reason for the job's state, in words."""
    reason, advice = _reason(job, history, queue, pools, ahead, now, kin)
    last = next((event.text for event in events if event.kind == "interrupted"), None)
    if job.state == "pending" and last:
        reason += f"; it ran before and was interrupted: {last}"
    facts = {
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "interruptions": job.interruptions,
        "ahead": ahead if job.state == "pending" else None,
        "events": [f"{event.at} {event.kind}" + (f": {event.text}" if event.text else "") for event in events],
    }
    return Why(id=job.id, state=job.state, reason=reason, advice=advice, facts=facts)


def _reason(
    job: JobView,
    history: Sequence[Attempt],
    queue: QueueView | None,
    pools: Sequence[PoolView],
    ahead: int,
    now: int,
    kin: Kin,
) -> tuple[str, list[str]]:
    match job.state:
        case "scheduled":
            return f"it may not start before {job.run_at} ({_until(job.run_at, now)})", [
                f"covey edit {job.id} --run-at now"
            ]
        case "pending":
            return _pending(job, queue, pools, ahead, kin)
        case "processing":
            if job.worker is None:
                return f"pool {job.pool} has claimed it and is about to start it", []
            return f"it runs on {job.worker} of pool {job.pool} since {job.started_at}", [f"covey logs -f {job.id}"]
        case "failed":
            return (
                f"attempt {job.attempts} of {job.max_attempts} failed: {job.error}; "
                f"the next one starts at {job.retry_at} ({_until(job.retry_at, now)})",
                [f"covey logs {job.id}", f"covey retry {job.id}"],
            )
        case "dead":
            tries = (
                f"after {job.attempts} of {job.max_attempts} attempts" if job.attempts else "without an attempt left"
            )
            return f"it was given up {tries}: {job.error}", [f"covey logs {job.id}", f"covey retry {job.id}"]
        case "cancelled":
            if job.pool is not None:
                holder = next((pool for pool in pools if pool.id == job.pool), None)
                if holder is not None and not health.is_alive(holder):
                    reaps = [] if any(health.is_alive(pool) for pool in pools) else ["covey worker reap"]
                    return f"it was cancelled and pool {job.pool}, which has to end its processes, is gone", reaps
                return f"it was cancelled and pool {job.pool} is still stopping its processes", []
            return (job.error or "somebody cancelled it"), [f"covey retry {job.id}"]
        case "completed":
            return f"it completed at {job.finished_at}", [f"covey logs {job.id}"]
        case "waiting":
            more = job.children.unfinished > len(kin.children[:NAMED])
            named = ", ".join(str(id) for id in kin.children[:NAMED]) + (" …" if more else "")
            return (
                f"it waits for children {named} ({job.children.ended} of {job.children.total} have ended)",
                [f"covey tree {job.id}"],
            )
        case _:
            return _blocked(job, kin)


def _blocked(job: JobView, kin: Kin) -> tuple[str, list[str]]:
    if kin.before is not None:
        return f"it waits for its turn: job {kin.before} comes before it", [f"covey why {kin.before}"]
    still = [root for root, outcome in kin.roots if outcome is None]
    if still:
        named = ", ".join(str(root) for root in still[:NAMED]) + (" …" if len(still) > NAMED else "")
        word = "has" if len(still) == 1 else "have"
        return f"blocked until root {named} {word} ended", [f"covey why {still[0]}"]
    bad = [root for root, outcome in kin.roots if outcome == "bad"][:NAMED]
    named = ", ".join(f"root {root} is dead" for root in bad) or "nothing is left to wait for"
    advice = [f"covey retry {root}" for root in bad]
    return f"blocked for ever, because nothing that it waits for completed: {named}", [
        *advice,
        f"covey cancel {job.id}",
    ]


def _pending(
    job: JobView, queue: QueueView | None, pools: Sequence[PoolView], ahead: int, kin: Kin
) -> tuple[str, list[str]]:
    if queue and queue.paused:
        until = f" until {queue.resume_at}" if queue.resume_at else ""
        return f"its queue {job.queue!r} is paused{until}", [f"covey queue resume {job.queue}"]
    if kin.lane_of is not None:
        return (
            f"its queue {job.queue!r} runs one tree at a time, and the lane belongs to {kin.lane_of}",
            [f"covey why {kin.lane_of}"],
        )
    if queue and queue.concurrency is not None and kin.running >= queue.concurrency:
        return (
            f"its queue {job.queue!r} runs at most {queue.concurrency} at a time, and so many run now",
            [f"covey list --state processing --queue {job.queue}"],
        )
    serving = [pool for pool in pools if health.serves(pool, job.queue) and health.takes_jobs(pool)]
    if not serving:
        return f"no worker serves the queue {job.queue!r}", [
            advise.start(queue=job.queue, kind=job.kind, pools=pools, task=job.task)
        ]
    of_kind = [pool for pool in serving if job.kind in pool.kinds]
    if not of_kind:
        what = "commands" if job.kind == "command" else f"{job.task!r}, a Python task"
        return f"no worker of the queue {job.queue!r} can run {what}", [
            advise.start(kind=job.kind, pools=pools, task=job.task)
        ]
    able = [pool for pool in of_kind if health.can_run(pool, job.queue, job.kind)]
    if not able:
        return _cannot_start(job, of_kind[-1])
    if all(health.is_frozen(pool) for pool in able):
        silent = able[-1]
        reason = f"pool {silent.id} (pid {silent.pid}) is frozen or cannot reach the database"
        return f"{reason}: silent for {silent.beat_age_s:.0f} s", [f"kill -CONT {silent.pid}", "covey status"]
    if (broken := _none_ready(job, able)) is not None:
        return broken
    place = "it is next in line" if not ahead else f"{ahead:,} jobs are ahead of it in {job.queue!r}"
    workers = sum(health.places(pool, job.queue) for pool in able)
    return f"{place}; {workers} workers serve that queue", ["covey worker list"]


def _none_ready(job: JobView, pools: Sequence[PoolView]) -> tuple[str, list[str]] | None:
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


def _cannot_start(job: JobView, pool: PoolView) -> tuple[str, list[str]]:
    what = health.title(pool, job.queue, job.kind)
    log = f"; log: {pool.log}" if pool.log else ""
    advice = [f"covey worker events {pool.id}", "mend it and restart the pool"]
    return f"no {what} worker can start in pool {pool.id}: {pool.given_up[what]}{log}", advice


def _until(at: str | None, now: int) -> str:
    if at is None:
        return "now"
    left = datetime.fromisoformat(at).timestamp() - now / 1e6
    return "due now" if left <= 0 else f"in {left:.0f} s"
