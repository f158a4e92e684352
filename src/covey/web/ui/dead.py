"""Dead letters: jobs that were given up, and wait for somebody to decide."""

from __future__ import annotations

from .html import a, div, p
from .jobs import listing, matching
from .page import Page, Shown
from .parts import empty
from .visit import Visit

LIMIT = 50


def show(visit: Visit) -> Shown:
    query = {**visit.query, "state": "dead"}
    page = matching(visit, query, limit=LIMIT)
    if not page.jobs:
        return Shown("Dead letters", empty("None: every job has ended well, is cancelled, or has tries left."))
    fields = {name: query[name] for name in ("state", "queue", "task", "batch", "q") if query.get(name)}
    older = a("older", href=visit.here(before=page.next), class_="button", rel="next") if page.next else None
    newest = a("newest", href=visit.here(before=None), class_="button") if visit.query.get("before") else None
    return Shown(
        "Dead letters",
        [
            p(
                "They have used up their tries, or said themselves that another would not help. ",
                a("Grouped by error", href=visit.url("errors")),
                data_key="about",
                class_="dim",
            ),
            listing(visit, page, fields, verbs=(("retry", "retry"), ("remove", "remove"))),
            div(newest, older, class_="pager", data_key="pager"),
        ],
    )


PAGE = Page(path="dead", show=show, needs="list_jobs", name="Dead", key="d")
