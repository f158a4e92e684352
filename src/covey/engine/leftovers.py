"""Files that a run leaves in the live directory when its pool is killed: nobody but us knows that they are stale."""

from __future__ import annotations

import contextlib
import os
import re

from ..core.model import JobRow
from ..store.store import Store

OF_A_RUN = re.compile(r"(\d+)\.(\d+)\.(out|err|spawn|info)")


def sweep(store: Store, directory: str) -> int:
    """Only files of runs that are still held are there. How many others there were."""
    runs = stale(store, directory)
    for name in (name for names in runs.values() for name in names):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, name))
    return len(runs)


def stale(store: Store, directory: str) -> dict[tuple[int, int], list[str]]:
    """The files of runs, by job and fence, that nobody holds.

    A pool deletes a run's files before it reports it, so the files of a run that is not held have no owner any more.
    """
    found: dict[tuple[int, int], list[str]] = {}
    if not directory:  # a queue in memory has no files
        return found
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if match := OF_A_RUN.fullmatch(name):
                found.setdefault((int(match[1]), int(match[2])), []).append(name)
    if not found:
        return found
    rows = store.rows(sorted({job for job, _ in found}))
    return {run: names for run, names in found.items() if not _is_held(rows.get(run[0]), run[1])}


def _is_held(row: JobRow | None, fence: int) -> bool:
    """Whether a pool still has this run; a cancel has raised the fence by one."""
    return row is not None and row.pool is not None and fence in (row.fence, row.fence - 1)
