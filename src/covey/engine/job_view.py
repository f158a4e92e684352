"""A job and its attempts as people see them, made of their records."""

from __future__ import annotations

from typing import Any

from ..core.codec import decode, printable
from ..core.label import parts
from ..core.machine import SECOND
from ..core.model import SHELL
from ..core.specs import command_line
from ..core.tree import with_children
from ..core.view import Attempt, ChildCounts, JobView, rfc3339
from ..store.job_rows import SHOWN, JobRecord


def job_view(row: JobRecord) -> JobView:
    options = {option.name: option.form.show(value) for option, value in zip(SHOWN, row.options, strict=True)}
    ran_by, ran_in, ran_on = parts(row.worker)
    held, beat_at = row.pool is not None, row.pool_beat_at
    ended, total = row.children_total - row.children_unfinished, row.children_total
    args = None if row.args is None else decode(row.args)
    return JobView(
        id=row.id,
        task=row.task,
        command=command_line(args) if row.task == SHELL and args else None,
        args=args,
        state=row.state,
        phase=row.phase,
        attempts=row.attempts,
        max_retries=options["max_attempts"],
        run_at=rfc3339(row.run_at),
        created_at=rfc3339(row.created_at),
        updated_at=rfc3339(row.updated_at),
        started_at=rfc3339(row.busy_since if row.busy_since is not None else row.started_at),
        finished_at=rfc3339(row.finished_at),
        pool=row.pool,
        worker=row.busy_worker if row.state == "processing" else ran_by,  # who ran it before does not run it now
        locked_by=row.pool_name if held else None,
        locked_until=rfc3339(beat_at + int((row.pool_lease_s or 0) * SECOND)) if held and beat_at is not None else None,
        retry_at=rfc3339(row.run_at) if row.state == "failed" else None,
        exit_code=row.exit_code,
        error=row.error,
        result=None if row.result is None else decode(row.result),
        parent_id=row.parent_id,
        root_id=row.root_id,
        children=ChildCounts(
            total, row.children_unfinished, row.children_failed, ended, ended / total if total else None
        ),
        interruptions=row.interruptions,
        info=with_children(*(None if text is None else decode(text) for text in (row.info, row.children_info))),
        kind=row.kind,
        fence=row.fence,
        depth=row.depth,
        child_no=row.child_no,
        pool_name=row.pool_name if held else ran_in,
        host=row.pool_host if held else ran_on,
        cached_from=row.cached_from,
        cache_key=row.cache_key,
        **options,
    )


def attempt_view(row: tuple[Any, ...]) -> Attempt:
    (
        number,
        fence,
        outcome,
        worker,
        pool,
        started_at,
        finished_at,
        exit_code,
        error,
        detail,
        out,
        err,
        lost_out,
        lost_err,
    ) = row
    ran_by, pool_name, host = parts(worker)
    return Attempt(
        number=number,
        fence=fence,
        outcome=outcome,
        worker=ran_by,
        pool=pool,
        started_at=rfc3339(started_at),
        finished_at=rfc3339(finished_at),
        exit_code=exit_code,
        error=error,
        detail=detail,
        stdout=printable(out or b""),
        stderr=printable(err or b""),
        stdout_dropped=lost_out,
        stderr_dropped=lost_err,
        pool_name=pool_name,
        host=host,
    )
