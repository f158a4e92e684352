"""What must hold of a queue whatever happened to it: used after random verbs, kills and planted bugs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from covey.core.model import ENDED, STATES
from covey.core.ports import Client
from covey.core.view import Filter, JobView

Fences = Mapping[int, int]


def check_queue(
    queue: Client,
    *,
    acknowledged: Iterable[int] = (),
    removed: Iterable[int] = (),
    fences: Fences | None = None,
) -> list[str]:
    """Every broken promise in one line each; empty when all is well. ``fences`` are those seen earlier."""
    jobs = {job.id: job for job in every_job(queue)}
    problems = [f"job {id} was acknowledged and is gone" for id in set(acknowledged) - set(removed) - jobs.keys()]
    problems += [f"job {id} was removed and is back" for id in set(removed) & jobs.keys()]
    problems += _totals(queue, jobs)
    problems += _families(jobs)
    for job in jobs.values():
        problems += (f"job {job.id}: {problem}" for problem in _job(queue, job))
    for id, fence in (fences or {}).items():
        if id in jobs and jobs[id].fence < fence:
            problems.append(f"job {id}: its fence fell from {fence} to {jobs[id].fence}")
    return problems


def every_job(queue: Client) -> Iterator[JobView]:
    before: int | None = None
    while True:
        page = queue.jobs(Filter(before=before, limit=10_000))
        yield from page.jobs
        if page.next is None:
            return
        before = page.next


def _totals(queue: Client, jobs: Mapping[int, JobView]) -> Iterator[str]:
    counted = queue.status().counts
    for state in STATES:
        seen = sum(job.state == state for job in jobs.values())
        if counted[state] != seen:
            yield f"status counts {counted[state]} {state}, there are {seen}"


def _families(jobs: Mapping[int, JobView]) -> Iterator[str]:
    """Counters are what a recount gives, and nobody waits for nobody."""
    families: dict[int, list[JobView]] = {}
    for job in jobs.values():
        if job.parent_id is not None:
            families.setdefault(job.parent_id, []).append(job)
    for id, job in jobs.items():
        children = families.get(id, [])
        unfinished = sum(child.state not in ENDED for child in children)
        failed = sum(child.state in ("dead", "cancelled") for child in children)
        counted = (job.children.total, job.children.unfinished, job.children.failed)
        if counted != (len(children), unfinished, failed):
            yield f"job {id}: it counts {counted} children, there are {(len(children), unfinished, failed)}"
        if job.state == "waiting" and not unfinished:
            yield f"job {id}: it waits although none of its children is unfinished"
        if job.state in ENDED and unfinished:
            yield f"job {id}: {job.state} with {unfinished} unfinished children"
        if job.state == "completed" and failed and job.phase == "run":
            yield f"job {id}: completed although {failed} children did not"
    yield from (f"job {id} is the parent of others and is gone" for id in families.keys() - jobs.keys())


def _job(queue: Client, job: JobView) -> Iterator[str]:
    if not 0 <= job.attempts <= job.max_attempts:
        yield f"{job.attempts} attempts of at most {job.max_attempts}"
    if job.state == "processing" and (job.pool is None or not job.attempts or not job.fence):
        yield f"processing without owner or attempt (pool {job.pool}, attempt {job.attempts}, fence {job.fence})"
    if job.pool is not None and job.state not in ("processing", "cancelled"):
        yield f"{job.state}, but pool {job.pool} holds it"
    if (job.finished_at is not None) != (job.state in ENDED):
        yield f"{job.state}, finished at {job.finished_at}"
    if job.state == "completed" and not (job.fence and (job.attempts or job.children.total)):
        yield f"completed without a run (attempt {job.attempts}, fence {job.fence})"
    if job.state in ("failed", "dead") and not job.error:
        yield f"{job.state} without a reason"
    history = queue.history(job.id)
    if any(a.fence >= b.fence for a, b in pairwise(history)):
        yield "its history's fences do not rise"
    if history and history[-1].fence > job.fence:
        yield f"its history knows fence {history[-1].fence}, the row only {job.fence}"
