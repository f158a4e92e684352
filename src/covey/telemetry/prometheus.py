"""All that is measured, as text that Prometheus reads: from the store, so that every server says the same.

Nothing is counted in this process: counters survive restarts, and a fleet of servers needs no registry between them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .. import __version__
from ..core.ports import Backend
from ..core.view import PoolView, QueueView, RunView, Status

MOST_TASKS = 200  # with more the rest is called `other`: each is a series for ever
RECENT_S = 300
QUANTILES = (0.5, 0.95, 0.99)
LIVE = ("pending", "scheduled", "failed", "processing", "waiting", "blocked", "dead")
OVER = ("completed", "dead", "cancelled")

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]

# name: (type, what it is)
NAMES: dict[str, tuple[str, str]] = {
    "covey_up": ("gauge", "The queue could be read."),
    "covey_build_info": ("gauge", "Version and schema."),
    "covey_jobs": ("gauge", "Jobs by queue and state; completed and cancelled ones are counters."),
    "covey_queue_oldest_pending_age_seconds": ("gauge", "How long the oldest job that could run has waited."),
    "covey_queue_oldest_processing_age_seconds": ("gauge", "How long the oldest run lasts."),
    "covey_queue_paused": ("gauge", "1 while the queue is paused."),
    "covey_queue_concurrency_limit": ("gauge", "How many jobs of the queue may run at a time, if there is a limit."),
    "covey_queue_workers": ("gauge", "Workers of living pools that serve the queue."),
    "covey_jobs_enqueued_total": ("counter", "Jobs that ever came into the queue."),
    "covey_jobs_finished_total": ("counter", "Jobs that ended, by how; one that is retried is taken back."),
    "covey_job_wait_recent_seconds": ("gauge", "How long the latest jobs have waited to run."),
    "covey_job_run_recent_seconds": ("gauge", "How long the latest jobs have run."),
    "covey_pools": ("gauge", "Pools by state; silent: not heard of for a lease."),
    "covey_workers": ("gauge", "Workers of living pools."),
    "covey_pool_last_beat_age_seconds": ("gauge", "The longest silence of a pool on that host."),
    "covey_pool_lease_seconds": ("gauge", "After which silence a pool on that host is given up."),
    "covey_pool_memory_bytes": ("gauge", "Memory of the workers on that host."),
    "covey_findings": ("gauge", "What a person should know, by level."),
}


def text(queue: Backend, sees: Callable[[str], bool] = lambda name: True, *, whole: bool = True) -> str:
    """Of the queues that may be seen; pools and findings only if that is the ``whole``."""
    found: dict[str, list[Sample]] = defaultdict(list)
    now = queue.clock()
    queues = [view for view in queue.queues() if sees(view.name)]
    found["covey_up"].append(((), 1))
    pools = queue.pool_views() if whole else []
    _queues(found, queues, pools, now, queue.oldest())
    _ended(found, queue, sees)
    runs = [run for run in queue.latest_runs(now - RECENT_S * 1_000_000) if sees(run.queue) and run.end is not None]
    _recent(found, runs)
    if whole:
        _whole(found, queue.status(), pools)
    return "".join(_lines(found))


def _queues(
    found: dict[str, list[Sample]],
    queues: Sequence[QueueView],
    pools: Sequence[PoolView],
    now: int,
    oldest: Mapping[str, tuple[int | None, int | None]],
) -> None:
    living = [pool for pool in pools if pool.beat_age_s <= pool.lease_s]
    for view in queues:
        named = (("queue", view.name),)
        for state in LIVE:
            found["covey_jobs"].append(((*named, ("state", state)), view.counts.get(state, 0)))
        for name, at in zip(("pending", "processing"), oldest.get(view.name, (None, None)), strict=True):
            age = 0.0 if at is None else max(0.0, (now - at) / 1e6)
            found[f"covey_queue_oldest_{name}_age_seconds"].append((named, age))
        found["covey_queue_paused"].append((named, float(view.paused)))
        if view.concurrency is not None:
            found["covey_queue_concurrency_limit"].append((named, view.concurrency))
        serving = [pool for pool in living if pool.queues is None or view.name in pool.queues]
        workers = sum(worker.state != "dead" for pool in serving for worker in pool.workers)
        found["covey_queue_workers"].append((named, workers))


def _ended(found: dict[str, list[Sample]], queue: Backend, sees: Callable[[str], bool]) -> None:
    counts, removed = queue.ever_ended()
    for name in sorted(counts.keys() | removed.keys()):
        if not sees(name):
            continue
        here, gone = counts.get(name, {}), removed.get(name, {})
        found["covey_jobs_enqueued_total"].append(((("queue", name),), sum(here.values()) + sum(gone.values())))
        for outcome in OVER:
            total = here.get(outcome, 0) + gone.get(outcome, 0)
            found["covey_jobs_finished_total"].append(((("queue", name), ("outcome", outcome)), total))


def _recent(found: dict[str, list[Sample]], runs: Sequence[RunView]) -> None:
    often = {task for task, _ in Counter(run.task for run in runs).most_common(MOST_TASKS)}
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    waited: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        assert run.end is not None
        where = run.queue, run.task if run.task in often else "other"
        took[where].append((run.end - run.begin) / 1e6)
        waited[where].append((run.begin - run.ready) / 1e6)
    for name, known in (("wait", waited), ("run", took)):
        for (queue, task), values in sorted(known.items()):
            values.sort()
            for share in QUANTILES:
                labels = (("queue", queue), ("task", task), ("quantile", f"{share:g}"))
                found[f"covey_job_{name}_recent_seconds"].append((labels, quantile(values, share)))


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted values the one below which that share lies."""
    return max(0.0, values[min(len(values) - 1, int(share * len(values)))])


def _whole(found: dict[str, list[Sample]], status: Status, pools: Sequence[PoolView]) -> None:
    found["covey_build_info"].append(((("version", __version__), ("schema", str(status.schema))), 1))
    states = Counter("silent" if pool.beat_age_s > pool.lease_s else pool.state for pool in pools)
    for state in ("running", "draining", "stopping", "silent"):
        found["covey_pools"].append(((("state", state),), states.get(state, 0)))
    workers = Counter((worker.mode or worker.kind, worker.state) for pool in pools for worker in pool.workers)
    for (kind, state), count in sorted(workers.items()):
        found["covey_workers"].append(((("kind", kind), ("state", state)), count))
    for host in sorted({pool.host for pool in pools}):
        here, named = [pool for pool in pools if pool.host == host], (("host", host),)
        found["covey_pool_last_beat_age_seconds"].append((named, max(pool.beat_age_s for pool in here)))
        found["covey_pool_lease_seconds"].append((named, max(pool.lease_s for pool in here)))
        memory = sum(worker.memory or 0 for pool in here for worker in pool.workers)
        found["covey_pool_memory_bytes"].append((named, memory))
    levels = Counter(each.level for each in status.findings)
    for level in ("broken", "warning", "note"):
        found["covey_findings"].append(((("level", level),), levels.get(level, 0)))


def _lines(found: Mapping[str, Iterable[Sample]]) -> Iterator[str]:
    for name, (kind, about) in NAMES.items():
        if samples := found.get(name):
            yield f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
            for labels, value in samples:
                yield f"{name}{_labels(labels)} {value:.10g}\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
