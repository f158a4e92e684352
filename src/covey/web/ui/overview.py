"""The queue at a glance: what is wrong first, then what is in it, who works, what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.view import Event, Finding, PoolView, QueueView, Status
from .html import Content, Html, a, div, h1, li, ol, small, span, strong
from .page import Page, Shown
from .parts import ago, badge, block, command_line, count, empty, job_link, note, span_of
from .queues import queue_table
from .visit import Visit

ORDER = ("pending", "processing", "scheduled", "failed", "waiting", "blocked", "dead", "completed", "cancelled")
EVENTS = 12


def show(visit: Visit) -> Shown:
    if not visit.may("status"):
        return _some_queues(visit)
    status: Status = visit.ask("status")
    pools: list[PoolView] = visit.ask("pool_views")
    events: list[Event] = visit.ask("all_events", query=_limit(EVENTS))
    return Shown(
        "Overview",
        [
            findings(status),
            tiles(visit, status.counts, status.oldest_pending_s),
            block("Queues", _queues(visit, status.queues), key="queues"),
            _rate(visit),
            block("Pools", pool_lines(visit, pools), key="pools", aside=a("all workers", href=visit.url("workers"))),
            block("Lately", event_list(visit, events), key="events"),
        ],
        head=h1("Overview ", badge(status.health, {"fine": "good", "warning": "warn", "broken": "bad"}[status.health])),
    )


def _rate(visit: Visit) -> Content:
    """Jobs per minute in the last hour, once three minutes of it are known."""
    from .metrics import MINUTE, charts

    return (
        charts(visit.engine.samples(visit.now // MINUTE - 60))[:1]
        if visit.engine.samples(visit.now // MINUTE - 4)
        else None
    )


def _some_queues(visit: Visit) -> Shown:
    """What somebody sees whose token is for some queues only."""
    queues: list[QueueView] = visit.ask("queues")
    counts = {state: sum(queue.counts.get(state, 0) for queue in queues) for state in ORDER}
    named = ", ".join(visit.guest.queues or ())
    return Shown(
        "Overview",
        [
            note("plain", f"This token is for {named} only.", key="scope"),
            tiles(visit, counts, None),
            block("Queues", _queues(visit, queues), key="queues"),
        ],
    )


def _limit(limit: int) -> Any:
    from ...core.bodies import EventsQuery

    return EventsQuery(limit=limit)


def findings(status: Status) -> Html:
    if not status.findings:
        return note("good", strong("All is well."), " Nothing waits for a person.", key="findings")
    return div(
        [_finding(each, place) for place, each in enumerate(status.findings)], data_key="findings", class_="findings"
    )


def _finding(found: Finding, place: int) -> Html:
    tone = {"broken": "bad", "warning": "warn", "note": "plain"}[found.level]
    return note(tone, strong(found.level), " ", sentence(found.text), _advice(found.advice), key=f"finding-{place}")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _advice(advice: str | None) -> Content:
    """A command is to be pasted; anything else is said."""
    if not advice:
        return None
    parts = advice.split("`")
    return div(
        [
            command_line(part) if odd else part
            for part, odd in zip(parts, [False, True] * len(parts), strict=False)
            if part
        ],
        class_="advice",
    )


def tiles(visit: Visit, counts: dict[str, int], oldest_s: float | None, *, queue: str | None = None) -> Html:
    """Each state with its number; a number leads to its jobs."""
    inside = []
    for state in ORDER:
        about: Content = None
        if state == "pending" and oldest_s is not None:
            about = small(f"oldest {span_of(oldest_s)}")
        number = counts.get(state, 0)
        inside.append(
            a(
                span(f"{number:,}", class_="figure"),
                span(state, class_="what"),
                about,
                href=visit.url("dead", queue=queue) if state == "dead" else visit.url("jobs", state=state, queue=queue),
                class_=f"tile {'none' if not number else ''}".strip(),
                data_key=state,
            )
        )
    return div(inside, class_="tiles", data_key="tiles")


def _queues(visit: Visit, queues: Sequence[QueueView]) -> Content:
    if not queues:
        return empty("No queue yet: the first job makes one. ", command_line("covey enqueue echo hello"))
    return queue_table(visit, queues)


def pool_lines(visit: Visit, pools: Sequence[PoolView]) -> Content:
    """One line for each pool, one square for each worker."""
    if not pools:
        return empty("No worker runs. ", command_line("covey worker start"))
    return div([_pool(visit, pool) for pool in pools], class_="pools")


def _pool(visit: Visit, pool: PoolView) -> Html:
    shown = pool.workers[:128]
    busy = sum(worker.state == "busy" for worker in pool.workers)
    return div(
        a(pool.name, href=visit.url("workers")),
        span(
            [span("", class_=f"cell {worker.state}", title=f"{worker.name}: {worker.state}") for worker in shown],
            class_="cells",
            role="img",
            aria_label=f"{busy} of {len(pool.workers)} busy",
        ),
        span(f"{busy} of {count(len(pool.workers), 'worker')} busy", class_="dim"),
        badge(pool.state, {"running": "good"}.get(pool.state, "warn")) if pool.state != "running" else None,
        class_="pool-line",
        data_key=f"pool-{pool.id}",
    )


def event_list(visit: Visit, events: Sequence[Event]) -> Content:
    if not events:
        return empty("Nothing has happened yet.")
    return ol([_event(visit, event) for event in events], class_="events")


def _event(visit: Visit, event: Event) -> Html:
    about: Content = None
    if event.job_id is not None:
        about = ["job ", job_link(visit, event.job_id)]
    elif event.pool is not None:
        about = f"pool {event.pool}" + (f" · {event.worker}" if event.worker else "")
    return li(
        span(ago(event.at, visit.now), class_="when"),
        span(event.kind, class_="kind"),
        span(about),
        span(event.text, class_="dim clip") if event.text else None,
        data_key=f"event-{event.id}",
    )


PAGE = Page(path="", show=show, needs="queues", name="Overview", key="o")
