"""All pages, in the order of the navigation. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import NotFound
from . import dead, errors, job, jobs, metrics, overview, queue, queues, schedules, system, tree, trees, workers
from .page import Page

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    jobs.PAGE,
    job.PAGE,
    trees.PAGE,
    tree.PAGE,
    queues.PAGE,
    queue.PAGE,
    workers.PAGE,
    schedules.PAGE,
    errors.PAGE,
    dead.PAGE,
    metrics.PAGE,
    system.PAGE,
)
_PARTS = [(page.path.split("/") if page.path else [], page) for page in PAGES]


def find(path: Sequence[str]) -> tuple[Page, dict[str, str]]:
    """The page at that address, and the names in it."""
    for parts, page in _PARTS:
        if len(parts) == len(path) and all(
            part.startswith("{") or part == said for part, said in zip(parts, path, strict=True)
        ):
            return page, {part[1:-1]: said for part, said in zip(parts, path, strict=True) if part.startswith("{")}
    raise NotFound("no such page; the overview leads to all there are")
