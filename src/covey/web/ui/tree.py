"""One tree: who has asked for whom, how far they are, and when each ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from ...core.bodies import TreeQuery
from ...core.view import Branch, JobView
from .html import Content, Html, a, div, g, h1, li, line, p, rect, small, span, svg, svg_title, text, ul
from .page import Page, Shown
from .parts import TONES, act, ask_first, badge, block, empty, job_link, lasted, span_of, tabs, title_of
from .visit import Visit

MOST = 200  # jobs on one page: a larger tree is shown in parts
WIDTH, ROW, NAMES = 760, 20, 200


class Node(Struct):
    job: JobView
    children: list[Node]
    more: int  # children that are not shown


def show(visit: Visit) -> Shown:
    ref = visit.names["ref"]
    tree = _read(visit, ref)
    job = tree.job
    counts = job.children
    tab = visit.query.get("tab", "")
    items = [
        ("tree", visit.url("trees", job.id), not tab),
        ("timeline", visit.url("trees", job.id, tab="time"), tab == "time"),
    ]
    said = p(
        f"{counts.ended:,} of {counts.total:,} children have ended"
        + (f", {counts.failed:,} of them badly" if counts.failed else ""),
        class_="dim",
        data_key="said",
    )
    inside = _timeline(visit, tree) if tab == "time" else ul(_item(visit, tree), class_="tree", data_key="tree")
    return Shown(
        f"Tree {job.id}",
        [_bar(job), said, div(tabs(items, label="ways to look"), data_key="tabs"), inside],
        head=h1(span(f"Tree {job.id} ", class_="num"), badge(job.state)),
        aside=_buttons(visit, job),
    )


def _buttons(visit: Visit, job: JobView) -> Content:
    if not visit.may("cancel"):
        return None
    if job.state in ("dead", "failed", "cancelled"):
        return act(visit, "retry", "retry what failed", tone="main", key="r", ref=job.id)
    return ask_first(visit, "cancel", "cancel", tone="bad", key="c", ref=job.id) if job.finished_at is None else None


def _read(visit: Visit, ref: str) -> Node:
    """Level by level, until enough is on the page."""
    branch: Branch = visit.ask("tree", ref=ref, query=TreeQuery(limit=MOST))
    top = Node(branch.job, [], 0)
    known = 1
    level = [(top, branch)]
    while level:
        following = []
        for node, branch in level:
            node.children = [Node(child, [], 0) for child in branch.children]
            node.more = branch.job.children.total - len(node.children)
            known += len(node.children)
            for child in node.children:
                if not child.job.children.total:
                    continue
                if known >= MOST:
                    child.more = child.job.children.total
                    continue
                following.append(
                    (child, visit.ask("tree", ref=str(child.job.id), query=TreeQuery(limit=MOST - known + 1)))
                )
                known += min(child.job.children.total, MOST - known + 1)
        level = following
    return top


def _bar(job: JobView) -> Content:
    counts = job.children
    if not counts.total:
        return None
    good = (counts.ended - counts.failed) / counts.total * 100
    bad = counts.failed / counts.total * 100
    bar = svg(
        rect(x=0, y=0, width=100, height=4, class_="bar rest"),
        rect(x=0, y=0, width=f"{good:.2f}", height=4, class_="bar good"),
        rect(x=f"{good:.2f}", y=0, width=f"{bad:.2f}", height=4, class_="bar bad"),
        viewBox="0 0 100 4",
        preserveAspectRatio="none",
        class_="progress",
        role="img",
        aria_label=f"{counts.ended} of {counts.total} have ended",
    )
    return div(bar, data_key="bar")


def _item(visit: Visit, node: Node) -> Html:
    job = node.job
    inside = [_item(visit, child) for child in node.children]
    if node.more > 0:
        inside.append(li(a(f"{node.more:,} more", href=visit.url("trees", job.id)), class_="dim"))
    return li(
        div(
            job_link(visit, job.id),
            badge(job.state),
            a(title_of(job), href=visit.url("jobs", job.id), class_="title"),
            small(f"{job.children.ended}/{job.children.total}", class_="tag") if job.children.total else None,
            span(lasted(job.started_at, job.finished_at, visit.now), class_="dim num") if job.started_at else None,
            class_="node",
        ),
        ul(inside) if inside else None,
        data_key=f"node-{job.id}",
    )


# ── when each ran ───────────────────────────────────────────────────────────────────────────────────────────────────


def _all(node: Node, depth: int = 0) -> Iterator[tuple[JobView, int]]:
    yield node.job, depth
    for child in node.children:
        yield from _all(child, depth + 1)


def _timeline(visit: Visit, tree: Node) -> Content:
    now = visit.now / 1e6
    rows = [
        (job, depth, _at(job.started_at), _at(job.finished_at) or now) for job, depth in _all(tree) if job.started_at
    ]
    runs = [(job, depth, begin, end) for job, depth, begin, end in rows if begin is not None]
    if not runs:
        return empty("Nothing of it has started yet.")
    first, last = min(run[2] for run in runs), max(run[3] for run in runs)
    critical = _critical(tree, now)
    took = max(last - first, 0.001)
    busy = sum(end - begin for job, _, begin, end in runs if not job.children.total)
    return [
        p(f"{span_of(took)} in all; {span_of(busy)} of work, {busy / took:.1f} at a time on average.", data_key="took"),
        block(
            "When each ran",
            _picture(runs, first, took, critical),
            p("Outlined: the jobs that the end of the tree has waited for.", class_="dim"),
            key="picture",
        ),
    ]


def _picture(runs: Sequence[tuple[JobView, int, float, float]], first: float, took: float, critical: set[int]) -> Html:
    scale = (WIDTH - NAMES - 10) / took
    rows = []
    for place, (job, depth, begin, end) in enumerate(runs):
        y = place * ROW
        tone = TONES.get(job.state, "off") + (" critical" if job.id in critical else "")
        name = f"{job.id} {title_of(job)}"
        rows.append(
            g(
                svg_title(f"{job.id}: {span_of(end - begin)}, {job.state}"),
                text(name if len(name) < 30 - depth else name[: 29 - depth] + "…", x=depth * 8, y=y + 14),
                rect(
                    x=f"{NAMES + (begin - first) * scale:.1f}",
                    y=y + 4,
                    width=f"{max(1.5, (end - begin) * scale):.1f}",
                    height=ROW - 8,
                    class_=f"bar {tone}",
                ),
            )
        )
    grid = [
        line(
            x1=f"{NAMES + share * (WIDTH - NAMES - 10):.0f}",
            x2=f"{NAMES + share * (WIDTH - NAMES - 10):.0f}",
            y1=0,
            y2=len(rows) * ROW,
            class_="rule",
        )
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    label = "when each job of the tree ran"
    picture = svg(grid, rows, viewBox=f"0 0 {WIDTH} {len(rows) * ROW}", class_="chart", role="img", aria_label=label)
    return div(picture, class_="scroll", tabindex=0, role="region", aria_label=label, data_key="picture")


def _critical(node: Node, now: float) -> set[int]:
    """The job, the child that ended last, its child that ended last, and so on."""
    found = set()
    while True:
        found.add(node.job.id)
        begun = [child for child in node.children if child.job.started_at]
        if not begun:
            return found
        node = max(begun, key=lambda child: _at(child.job.finished_at) or now)


def _at(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


PAGE = Page(path="trees/{ref}", show=show, needs="tree")
