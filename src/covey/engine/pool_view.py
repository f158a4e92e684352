"""A pool and its workers as people see them."""

from __future__ import annotations

from typing import Any

from ..core.clocks import age_s
from ..core.codec import decode
from ..core.turn import WorkerState
from ..core.view import PoolView, WorkerView, rfc3339


def pool_view(row: tuple[Any, ...], workers: list[WorkerState], now: int) -> PoolView:
    id, name, host, boot_id, pid, ticks, queues, kinds, count, types, app, log, given_up = row[:13]
    version, beat_at, lease_s, registered_at, stop_requested_at, draining_at, held = row[13:]
    beat_age_s = age_s(beat_at, now)
    return PoolView(
        id=id,
        name=name,
        host=host,
        boot=boot_id,
        pid=pid,
        ticks=ticks,
        queues=None if queues is None else decode(queues),
        kinds=decode(kinds),
        count=count,
        types=None if types is None else decode(types),
        app=app,
        log=log,
        given_up={} if given_up is None else decode(given_up),
        version=version,
        beat_at=rfc3339(beat_at),
        beat_age_s=beat_age_s,
        lease_s=lease_s,
        registered_at=rfc3339(registered_at),
        state="stopping" if stop_requested_at else "draining" if draining_at else "running",
        held=held,
        workers=[_worker(worker, id, host, beat_age_s) for worker in workers],
    )


def _worker(worker: WorkerState, pool: int, host: str, beat_age_s: float) -> WorkerView:
    is_command = worker.kind == "command"
    return WorkerView(
        id=f"{pool}/{worker.name}",
        name=worker.name,
        pool=pool,
        host=host,
        queue=worker.queue,
        kind="command" if is_command else "python",
        mode=None if is_command else worker.kind,
        state=worker.state,
        pid=worker.pid,
        ticks=worker.ticks,
        started_at=rfc3339(worker.started_at),
        beat_age_s=beat_age_s,
        job_id=worker.job_id,
        fence=worker.fence,
        busy_since=rfc3339(worker.busy_since),
        done=worker.done,
        failed=worker.failed,
        memory=worker.memory,
        error=worker.error,
    )
