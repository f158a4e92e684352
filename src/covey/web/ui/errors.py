"""What goes wrong, grouped: jobs that died or failed of the same, whatever their numbers are."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ...core.fingerprint import fingerprint, pattern
from ...core.view import JobView
from .html import Content, a, div, small, span
from .jobs import listing, matching
from .page import Page, Shown
from .parts import ago, badge, empty, grid, job_link, note
from .visit import Visit

LOOKED_AT = 2000  # jobs, the newest
STATES = "dead,failed"


class Group(Struct):
    print: str
    task: str
    pattern: str
    jobs: list[JobView]


def show(visit: Visit) -> Shown:
    page = matching(visit, {**visit.query, "state": STATES}, limit=LOOKED_AT)
    groups = grouped(page.jobs)
    if wanted := visit.query.get("group"):
        return _one(visit, wanted, groups)
    if not groups:
        return Shown("Errors", empty("Nothing has failed that is not mended."))
    rows = ((f"group-{group.print}", _row(visit, group)) for group in groups)
    columns = (
        ("error", "grow"),
        ("task", "w1"),
        ("jobs", "num"),
        ("dead", "num w2"),
        ("last", "w2"),
        ("example", "ref"),
    )
    rest = (
        note("plain", f"These are the newest {LOOKED_AT:,} jobs that failed; there are more.", key="rest")
        if page.next
        else None
    )
    return Shown("Errors", [rest, grid(columns, rows, label="errors")])


def grouped(jobs: Iterable[JobView]) -> list[Group]:
    """Groups of the same error, the largest first."""
    found: dict[str, Group] = {}
    for job in jobs:
        error = job.error or "no reason was given"
        name = fingerprint(job.task, error)
        if name not in found:
            found[name] = Group(name, job.task, pattern(error), [])
        found[name].jobs.append(job)
    return sorted(found.values(), key=lambda group: -len(group.jobs))


def _row(visit: Visit, group: Group) -> list[Content]:
    last = max((job.finished_at or job.updated_at or "" for job in group.jobs), default="")
    return [
        a(group.pattern, href=visit.url("errors", group=group.print), class_="title"),
        span(group.task, class_="mono dim"),
        f"{len(group.jobs):,}",
        f"{sum(job.state == 'dead' for job in group.jobs):,}",
        ago(last or None, visit.now),
        job_link(visit, group.jobs[0].id),
    ]


def _one(visit: Visit, name: str, groups: list[Group]) -> Shown:
    from ...core.view import Page as JobPage

    found = next((group for group in groups if group.print == name), None)
    if found is None:
        return Shown("Errors", [empty("Nobody fails of that any more. "), a("All errors", href=visit.url("errors"))])
    shown = found.jobs[:500]
    return Shown(
        found.pattern,
        [
            div(badge(f"{len(found.jobs):,} jobs", "bad"), " ", small(found.task, class_="mono"), data_key="about"),
            listing(visit, JobPage(shown, None), {}, verbs=(("retry", "retry"), ("remove", "remove"))),
        ],
        aside=a("all errors", href=visit.url("errors"), class_="button"),
    )


PAGE = Page(path="errors", show=show, needs="list_jobs", name="Errors", key="e")
