"""Jobs, newest first: the ones that are asked for, and what can be done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.bodies import JobsQuery
from ...core.model import STATES
from ...core.view import JobView, QueueView
from ...core.view import Page as JobPage
from ...errors import InvalidInput
from ..request import converted
from .html import Content, Html, a, button, div, form, input_, label, option, select, small, span
from .page import Page, Shown
from .parts import ago, badge, command_line, empty, grid, hidden, job_link, lasted, queue_link, short, tabs, title_of
from .visit import Query, Visit

FIELDS = ("state", "queue", "task", "batch", "q")
LIMIT = 50
VERBS = (("retry", "retry"), ("cancel", "cancel"), ("remove", "remove"))


def show(visit: Visit) -> Shown:
    page = matching(visit, visit.query, limit=LIMIT)
    return Shown(
        "Jobs",
        [_states(visit), _search(visit), listing(visit, page, _filter(visit.query)), _pager(visit, page)],
    )


def _filter(query: Query) -> dict[str, str]:
    return {name: query[name] for name in FIELDS if query.get(name)}


def matching(visit: Visit, query: Query, *, limit: int, before: int | None = None) -> JobPage:
    """One page of the jobs that are asked for."""
    given: dict[str, Any] = _filter(query)
    if "state" in given:
        given["state"] = tuple(given["state"].split(","))
        if strange := [state for state in given["state"] if state not in STATES]:
            raise InvalidInput(f"no state {strange[0]!r}; states are {', '.join(STATES)}")
    last = before if before is not None else query.get("before")
    if last is not None:
        given["before"] = last
    found: JobPage = visit.ask("list_jobs", query=converted(given | {"limit": limit}, JobsQuery))
    return found


def _states(visit: Visit) -> Html:
    """Ways to look, with how many there are; the counts are of the queue that is asked for."""
    queues: list[QueueView] = visit.ask("queues")
    wanted = visit.query.get("queue")
    counts = [queue.counts for queue in queues if wanted in (None, queue.name)]
    here = visit.query.get("state", "")
    plain = not any(visit.query.get(name) for name in ("task", "batch", "q"))
    items: list[tuple[Content, str, bool]] = []
    for state in ("", *STATES):
        total = sum(sum(each.values()) if not state else each.get(state, 0) for each in counts)
        count = small(f"{total:,}", class_="num") if plain else None
        href = visit.url("jobs", **{**_filter(visit.query), "state": state})
        items.append(([state or "all", " ", count], href, here == state))
    return div(tabs(items, label="states"), data_key="states")


def _search(visit: Visit) -> Html:
    queues = [queue.name for queue in visit.ask("queues")]
    here = visit.query.get("queue", "")
    choose = select(
        option("every queue", value=""),
        [option(name, value=name, selected=name == here) for name in queues],
        id="queue",
        name="queue",
    )
    return form(
        hidden(state=visit.query.get("state", "")),
        div(label("queue", for_="queue"), choose, class_="field"),
        hidden(task=visit.query.get("task", ""), batch=visit.query.get("batch", "")),
        div(
            label("query", for_="query"),
            input_(
                id="query",
                name="q",
                value=visit.query.get("q"),
                placeholder='task:report.* age:>1h error:"no space"',
                spellcheck="false",
                data_search=True,
            ),
            class_="field wide",
        ),
        button("look", type="submit", class_="button"),
        method="get",
        action=visit.url("jobs"),
        class_="row search",
        data_key="search",
    )


COLUMNS = (
    ("", "pick"),
    ("job", "ref"),
    ("state", ""),
    ("what", "grow"),
    ("queue", "w1"),
    ("tries", "num w2"),
    ("took", "num w2"),
    ("when", "w2"),
)


def listing(visit: Visit, page: JobPage, fields: Query, *, verbs: Sequence[tuple[str, str]] = VERBS) -> Content:
    """A table of jobs in a form: some of them are chosen, or all that match, and then something is done."""
    if not page.jobs:
        return empty("No job here. ", command_line("covey enqueue echo hello"))
    table = grid(COLUMNS, ((f"job-{job.id}", row(visit, job)) for job in page.jobs), label="jobs")
    if not visit.may("cancel"):
        return table
    buttons = [
        button(
            word,
            type="submit",
            formaction=visit.url("do", verb),
            class_=f"button {'bad' if verb == 'remove' else ''}".strip(),
            data_hotkey={"retry": "r", "cancel": "c"}.get(verb),
        )
        for verb, word in verbs
    ]
    whole = [
        input_(type="checkbox", name="all", value="yes", id="all"),
        label("all that match, on every page", for_="all"),
    ]
    bar = div(span("with the chosen: ", class_="dim"), buttons, span(whole, class_="check"), class_="bulk")
    return form(
        hidden(**fields), table, bar, method="get", action=visit.url("do", "retry"), data_key="listing", data_ask=True
    )


def row(visit: Visit, job: JobView) -> list[Content]:
    name = f"choose job {job.id}"
    what: list[Content] = [a(title_of(job), href=visit.url("jobs", job.id), class_="title")]
    if job.key:
        what.append(small(short(job.key, 60), class_="tag"))
    if job.children.total:
        what.append(small(f"{job.children.ended} of {job.children.total} children", class_="tag"))
    if job.error and job.state in ("dead", "failed", "cancelled"):
        what.append(div(short(job.error, 160), class_="error"))
    return [
        input_(type="checkbox", name="ref", value=job.id, aria_label=name),
        job_link(visit, job.id),
        badge(job.state),
        what,
        queue_link(visit, job.queue),
        f"{job.attempts}/{job.max_attempts}",
        lasted(job.started_at, job.finished_at, visit.now)
        if job.state == "processing" or job.finished_at
        else span("–", class_="dim"),
        ago(
            job.run_at if job.state in ("scheduled", "failed") else job.finished_at or job.started_at or job.created_at,
            visit.now,
        ),
    ]


def _pager(visit: Visit, page: JobPage) -> Html:
    return div(
        a("newest", href=visit.here(before=None), class_="button") if visit.query.get("before") else None,
        a("older", href=visit.here(before=page.next), class_="button", rel="next", data_hotkey="n")
        if page.next
        else None,
        class_="pager",
        data_key="pager",
    )


PAGE = Page(path="jobs", show=show, needs="list_jobs", name="Jobs", key="j")
