"""One job: why it is where it is, what it wrote, how it came there, and how to run it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from ...core.bodies import EventsQuery, TreeQuery
from ...core.model import ENDED, SHELL
from ...core.view import Attempt, Branch, Event, JobView, Why
from .again import COVERED, fields_of, line_of
from .html import (
    Content,
    Html,
    a,
    button,
    details,
    div,
    form,
    h1,
    input_,
    label,
    li,
    ol,
    p,
    pre,
    small,
    span,
    summary,
    textarea,
)
from .output import text_of
from .overview import event_list, sentence
from .page import Page, Shown
from .parts import (
    act,
    ago,
    ask_first,
    badge,
    block,
    command_line,
    facts,
    grid,
    hidden,
    job_link,
    lasted,
    queue_link,
    title_of,
)
from .visit import Visit

EVENTS = 50
CHILDREN = 20


def show(visit: Visit) -> Shown:
    ref = visit.names["ref"]
    job: JobView = visit.ask("job", ref=ref)
    id = str(job.id)
    why: Why = visit.ask("why", ref=id)
    history: list[Attempt] = visit.ask("history", ref=id)
    events: list[Event] = visit.ask("events", ref=id, query=EventsQuery(limit=EVENTS))
    return Shown(
        f"Job {job.id}",
        [
            _why(visit, job, why),
            _way(visit, job),
            _live(visit, job),
            block("Facts", _facts(visit, job), key="facts"),
            _children(visit, job),
            _attempts(visit, job, history),
            block("What happened", event_list(visit, events), key="events"),
            _again(visit, job),
            _raw(job, history),
        ],
        head=[h1(span(f"Job {job.id} ", class_="num"), badge(job.state)), p(title_of(job), class_="lead mono")],
        aside=_buttons(visit, job),
    )


def _buttons(visit: Visit, job: JobView) -> Content:
    if not visit.may("cancel"):
        return None
    buttons: list[Content] = []
    if job.state in ("failed", "dead", "cancelled", "scheduled"):
        buttons.append(
            act(visit, "retry", "run now" if job.state == "scheduled" else "retry", tone="main", key="r", ref=job.id)
        )
    if job.state in ENDED:
        buttons.append(act(visit, "again", "run again", ref=job.id))
        buttons.append(ask_first(visit, "remove", "remove", tone="bad", ref=job.id))
    else:
        buttons.append(ask_first(visit, "cancel", "cancel", tone="bad", key="c", ref=job.id))
    return buttons


def _why(visit: Visit, job: JobView, why: Why) -> Html:
    tone = {"dead": "bad", "failed": "warn", "completed": "good", "processing": "run"}.get(job.state, "plain")
    lines = [command_line(line) if line.startswith(("covey", "kill")) else span(line) for line in why.advice]
    return div(
        p(sentence(why.reason), class_="why"),
        div(lines, class_="advice") if lines else None,
        class_=f"note {tone}",
        data_key="why",
    )


STEPS = (("created", "created_at"), ("due", "run_at"), ("started", "started_at"), ("ended", "finished_at"))


def _way(visit: Visit, job: JobView) -> Html:
    """The way through the states, with times."""
    steps = []
    for word, field in STEPS:
        at = getattr(job, field)
        if field == "run_at" and (at is None or at <= (job.created_at or "")):
            continue
        steps.append(li(span(word, class_="what"), ago(at, visit.now), class_="done" if at else "open"))
    took = lasted(job.started_at, job.finished_at, visit.now) if job.started_at else None
    steps.append(li(span("took", class_="what"), took or span("–", class_="dim"), class_="took"))
    return ol(steps, class_="way", data_key="way")


def _live(visit: Visit, job: JobView) -> Content:
    """What it writes while it runs; the page follows it from where the server has read."""
    if job.state != "processing":
        return None
    live = visit.ask("output", ref=str(job.id), query=msgspec.convert({}, _output_query()))
    places = {"data_follow": visit.url("jobs", job.id, "output"), "data_fence": live.fence}
    panes = [
        div(
            div(span(name, class_="what"), class_="pane-head"),
            pre(
                text_of(data.decode("utf-8", "replace")),
                class_="output",
                tabindex=0,
                data_stream_name=name,
                data_keep=f"{name}-{live.fence}",
                aria_label=f"{name} of the running attempt",
                role="log",
                aria_live="off",
            ),
            class_="pane",
        )
        for name, data in (("stdout", live.stdout), ("stderr", live.stderr))
    ]
    follow = label(input_(type="checkbox", checked=True, id="follow", data_keep="follow"), " follow", class_="check")
    return block(
        "Live output",
        div(panes, data_out=live.out, data_err=live.err, **places, id="live-output"),
        key="live",
        aside=follow,
    )


def _output_query() -> Any:
    from ...core.bodies import OutputQuery

    return OutputQuery


def _facts(visit: Visit, job: JobView) -> Html:
    where = None
    if job.pool_name or job.worker:
        where = " · ".join(filter(None, (job.worker, job.pool_name, job.host)))
    env = job.args.get("env") if job.task == SHELL and isinstance(job.args, dict) else None
    return facts(
        ("task", span(job.task, class_="mono") if job.task != SHELL else None),
        ("command", pre(job.command, class_="line") if job.command else None),
        ("arguments", pre(_json(job.args), class_="line") if job.task != SHELL and job.args else None),
        ("variables", ", ".join(f"{name}={COVERED}" for name in env) if env else None),
        ("queue", queue_link(visit, job.queue)),
        ("key", span(job.key, class_="mono") if job.key else None),
        ("priority", f"{job.priority}" if job.priority else None),
        ("attempts", f"{job.attempts} of {job.max_attempts}"),
        ("interrupted", f"{job.interruptions} times" if job.interruptions else None),
        ("time limit", f"{job.timeout:g} s" if job.timeout else "none"),
        ("directory", span(job.cwd, class_="mono") if job.cwd else None),
        ("ran by" if job.state != "processing" else "runs on", where),
        ("exit code", f"{job.exit_code}" if job.exit_code is not None else None),
        ("error", pre(job.error, class_="line bad") if job.error else None),
        ("result", pre(_json(job.result), class_="line") if job.result is not None else None),
        ("says", pre(_json(job.info), class_="line") if job.info is not None else None),
        ("batch", a(job.batch, href=visit.url("jobs", batch=job.batch)) if job.batch else None),
        (
            "labels",
            [span(f"{name}: {value}", class_="tag") for name, value in job.labels.items()] if job.labels else None,
        ),
        ("parent", job_link(visit, job.parent_id) if job.parent_id else None),
        ("root", job_link(visit, job.root_id) if job.root_id != job.id else None),
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


def _children(visit: Visit, job: JobView) -> Content:
    if not job.children.total and job.parent_id is None:
        return None
    whole = a("the whole tree", href=visit.url("trees", job.root_id))
    if not job.children.total:
        return block("Tree", p("It is part of a tree. ", whole), key="tree")
    branch: Branch = visit.ask("tree", ref=str(job.id), query=TreeQuery(limit=CHILDREN))
    rows = (
        (
            f"child-{child.id}",
            [
                job_link(visit, child.id),
                badge(child.state),
                a(title_of(child), href=visit.url("jobs", child.id), class_="title"),
                lasted(child.started_at, child.finished_at, visit.now),
            ],
        )
        for child in branch.children
    )
    columns = (("job", "ref"), ("state", ""), ("what", "grow"), ("took", "num"))
    counts = job.children
    said = f"{counts.ended:,} of {counts.total:,} have ended" + (f", {counts.failed:,} badly" if counts.failed else "")
    return block("Children", p(said, class_="dim"), grid(columns, rows, label="children"), key="tree", aside=whole)


def _attempts(visit: Visit, job: JobView, history: Sequence[Attempt]) -> Content:
    if not history:
        return None
    last = max(each.fence for each in history)
    return block(
        "Attempts", [_attempt(visit, job, each, each.fence == last) for each in reversed(history)], key="attempts"
    )


def _attempt(visit: Visit, job: JobView, attempt: Attempt, is_open: bool) -> Html:
    tone = {"ok": "good", "success": "good", "interrupted": "warn"}.get(attempt.outcome, "bad")
    where = " · ".join(filter(None, (attempt.worker, attempt.pool_name, attempt.host)))
    top = summary(
        span(f"Attempt {attempt.number} ", class_="strong"),
        badge(attempt.outcome, tone),
        " ",
        lasted(attempt.started_at, attempt.finished_at, visit.now),
        span(f" · exit {attempt.exit_code}", class_="dim") if attempt.exit_code is not None else None,
        span(f" · {where}", class_="dim w2") if where else None,
    )
    panes = [
        _pane(name, body, dropped)
        for name, body, dropped in (
            ("stdout", attempt.stdout, attempt.stdout_dropped),
            ("stderr", attempt.stderr, attempt.stderr_dropped),
        )
        if body
    ]
    return details(
        top,
        p(attempt.error, class_="error") if attempt.error else None,
        pre(attempt.detail, class_="output", tabindex=0, aria_label="traceback") if attempt.detail else None,
        panes,
        open=is_open,
        data_key=f"attempt-{attempt.fence}",
        class_="attempt",
    )


def _pane(name: str, body: str, dropped: int) -> Html:
    lost = small(f"{dropped:,} bytes are left out in the middle", class_="dim") if dropped else None
    wrap = button("wrap", type="button", class_="plain", data_wrap=True)
    save = button("save", type="button", class_="plain", data_save=f"{name}.txt")
    return div(
        div(span(name, class_="what"), lost, span(class_="spring"), wrap, save, class_="pane-head"),
        pre(text_of(body), class_="output", tabindex=0, aria_label=name),
        class_="pane",
    )


def _again(visit: Visit, job: JobView) -> Content:
    fields, line = fields_of(job), line_of(job)
    if fields is None:
        return None
    inside: list[Content] = [command_line(line)] if line else []
    if visit.may("enqueue_jobs"):
        text = json.dumps(fields, indent=1, ensure_ascii=False)
        inside.append(
            details(
                summary("run again, changed"),
                form(
                    hidden(csrf=visit.visitor.csrf, like=job.id),
                    label("the job as an object", for_="object"),
                    textarea(
                        text,
                        id="object",
                        name="object",
                        rows=min(20, text.count("\n") + 2),
                        spellcheck="false",
                        data_keep="object",
                    ),
                    button("enqueue it", type="submit", class_="button main"),
                    method="post",
                    action=visit.url("do", "enqueue"),
                    class_="stack",
                ),
                data_key="again-changed",
            )
        )
    return block("Again", inside, key="again")


def _raw(job: JobView, history: Sequence[Attempt]) -> Html:
    shown = msgspec.to_builtins(job)
    if job.task == SHELL and isinstance(job.args, dict) and job.args.get("env"):
        shown["args"] = job.args | {"env": dict.fromkeys(job.args["env"], COVERED)}
    return details(
        summary("The job as JSON"),
        pre(_json(shown), class_="output", tabindex=0, aria_label="JSON"),
        data_key="raw",
        class_="block",
    )


PAGE = Page(path="jobs/{ref}", show=show, needs="job")
