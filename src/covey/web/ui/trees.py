"""Trees that are under way: jobs that wait for their children."""

from __future__ import annotations

from ...core.view import JobView
from .html import Content, a, span
from .jobs import matching
from .page import Page, Shown
from .parts import ago, badge, empty, grid, job_link, queue_link, title_of
from .visit import Visit

LIMIT = 100
COLUMNS = (
    ("job", "ref"),
    ("state", ""),
    ("what", "grow"),
    ("ended", "num"),
    ("badly", "num w2"),
    ("queue", "w1"),
    ("begun", "w2"),
)


def show(visit: Visit) -> Shown:
    page = matching(visit, {"state": "waiting", **visit.query}, limit=LIMIT)
    roots = [job for job in page.jobs if job.parent_id is None] or page.jobs
    if not roots:
        said = empty(
            "No tree is under way. A job becomes one when it asks for children. ", a("All jobs", href=visit.url("jobs"))
        )
        return Shown("Trees", said)
    rows = ((f"tree-{job.id}", _row(visit, job)) for job in roots)
    return Shown("Trees", grid(COLUMNS, rows, label="trees"))


def _row(visit: Visit, job: JobView) -> list[Content]:
    return [
        job_link(visit, job.id),
        badge(job.state),
        a(title_of(job), href=visit.url("trees", job.id), class_="title"),
        f"{job.children.ended:,}/{job.children.total:,}",
        f"{job.children.failed:,}" if job.children.failed else span("0", class_="dim"),
        queue_link(visit, job.queue),
        ago(job.started_at or job.created_at, visit.now),
    ]


PAGE = Page(path="trees", show=show, needs="tree", name="Trees", key="r")
