"""Pools, their workers, what each runs; how they started."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...core.bodies import PoolEventsQuery
from ...core.view import Event, PoolView, WorkerView
from .html import Content, Html, div, g, p, rect, span, svg, svg_title, text
from .overview import event_list
from .page import Page, Shown
from .parts import (
    ago,
    ask_first,
    badge,
    block,
    command_line,
    count,
    empty,
    facts,
    grid,
    job_link,
    lasted,
    note,
    size_of,
    span_of,
    tabs,
)
from .visit import Visit

COLUMNS = (
    ("worker", "grow"),
    ("state", ""),
    ("job", "ref"),
    ("since", "num w2"),
    ("done", "num"),
    ("failed", "num w2"),
    ("memory", "num w1"),
    ("pid", "num w1"),
)
TONES = {"busy": "run", "idle": "good", "starting": "wait", "stopping": "warn", "dead": "bad"}
EVENTS = 60


def show(visit: Visit) -> Shown:
    pools: list[PoolView] = visit.ask("pool_views")
    tab = visit.query.get("tab", "")
    items = [
        ("now", visit.url("workers"), not tab),
        ("start-up", visit.url("workers", tab="start"), tab == "start"),
        ("events", visit.url("workers", tab="events"), tab == "events"),
    ]
    parts: list[Content] = [div(tabs(items, label="workers"), data_key="tabs")]
    if tab == "events":
        events: list[Event] = visit.ask("pool_events", query=PoolEventsQuery(limit=EVENTS))
        parts.append(block("What happened to pools and workers", event_list(visit, events), key="events"))
    elif not pools:
        parts.append(empty("No worker runs. ", command_line("covey worker start")))
    elif tab == "start":
        parts += [block(pool.name, _start(visit, pool), key=f"pool-{pool.id}") for pool in pools]
    else:
        parts += [_pool(visit, pool) for pool in pools]
    return Shown("Workers", parts)


def _pool(visit: Visit, pool: PoolView) -> Html:
    busy = sum(worker.state == "busy" for worker in pool.workers)
    silent = pool.beat_age_s > pool.lease_s
    stop = ask_first(visit, "stop_pools", "stop", tone="bad", pool=pool.id) if visit.may("stop_pools") else None
    about = facts(
        ("serves", ", ".join(pool.queues) if pool.queues is not None else "every queue"),
        ("runs", ", ".join(pool.kinds) + f", {pool.count} at a time"),
        ("app", span(pool.app, class_="mono") if pool.app else None),
        ("seen", [ago(pool.beat_at, visit.now), badge("silent", "bad") if silent else None]),
        ("since", ago(pool.registered_at, visit.now)),
        ("where", f"{pool.host}, pid {pool.pid}, version {pool.version}"),
        ("log", command_line(pool.log) if pool.log else None),
    )
    lost = [note("bad", f"{what} is given up: {why}") for what, why in pool.given_up.items()]
    rows = ((f"worker-{worker.id}", _worker(visit, worker)) for worker in pool.workers)
    title: list[Content] = [pool.name, " ", badge(pool.state, "good" if pool.state == "running" else "warn")]
    head = p(f"{busy} of {count(len(pool.workers), 'worker')} busy, {count(pool.held, 'job')} held", class_="dim")
    return block(
        title,
        head,
        lost,
        grid(COLUMNS, rows, label=f"workers of {pool.name}"),
        about,
        key=f"pool-{pool.id}",
        aside=stop,
    )


def _worker(visit: Visit, worker: WorkerView) -> list[Content]:
    error = div(worker.error, class_="error") if worker.error else None
    return [
        [
            worker.name,
            span(f" {worker.mode}", class_="dim") if worker.mode else None,
            span(f" · {worker.queue}", class_="dim") if worker.queue else None,
            error,
        ],
        badge(worker.state, TONES[worker.state]),
        job_link(visit, worker.job_id) if worker.job_id else span("–", class_="dim"),
        lasted(worker.busy_since, None, visit.now) if worker.busy_since else ago(worker.started_at, visit.now),
        f"{worker.done:,}",
        f"{worker.failed:,}" if worker.failed else span("0", class_="dim"),
        size_of(worker.memory),
        f"{worker.pid or '–'}",
    ]


# ── how they started ────────────────────────────────────────────────────────────────────────────────────────────────

BEGINS, ENDS = {"starting": "asked", "registered": "loaded", "ready": "ready"}, "ready"
WIDTH, ROW = 640, 22


def _start(visit: Visit, pool: PoolView) -> Content:
    """A bar for each worker: asked for, there, ready; and what one after the other would have taken."""
    events: list[Event] = visit.ask("pool_events", query=PoolEventsQuery(pool=pool.id, limit=1000))
    times: dict[str, dict[str, float]] = {}
    for event in reversed(events):
        if event.worker and event.at and event.kind in BEGINS:
            times.setdefault(event.worker, {}).setdefault(event.kind, datetime.fromisoformat(event.at).timestamp())
    bars = [
        (name, seen)
        for name, seen in sorted(times.items(), key=lambda pair: min(pair[1].values()))
        if "starting" in seen
    ]
    done = [seen for _, seen in bars if ENDS in seen]
    if not bars:
        return empty("The events of its start are gone by now.")
    first = min(seen["starting"] for _, seen in bars)
    last = max((max(seen.values()) for _, seen in bars))
    took, alone = last - first, sum(seen[ENDS] - seen["starting"] for seen in done)
    said = p(
        f"{count(len(done), 'worker')} ready within {span_of(took)}; ",
        f"one after the other it would have taken {span_of(alone)}.",
    )
    return [said, _bars(bars, first, max(took, 0.001))]


def _bars(bars: Sequence[tuple[str, dict[str, float]]], first: float, took: float) -> Html:
    rows = []
    scale = (WIDTH - 130) / took
    for place, (name, seen) in enumerate(bars[:200]):
        y = place * ROW
        begin, there, end = seen["starting"], seen.get("registered"), seen.get(ENDS)
        until = end or there or begin
        middle = there or until
        words = f"{name}: ready after {span_of(until - begin)}" if end else f"{name}: not ready"
        rows.append(
            g(
                svg_title(words),
                text(name, x=0, y=y + 15),
                rect(
                    x=f"{120 + (begin - first) * scale:.1f}",
                    y=y + 4,
                    width=f"{max(1.0, (middle - begin) * scale):.1f}",
                    height=ROW - 8,
                    class_="bar wait",
                ),
                rect(
                    x=f"{120 + (middle - first) * scale:.1f}",
                    y=y + 4,
                    width=f"{max(1.0, (until - middle) * scale):.1f}",
                    height=ROW - 8,
                    class_="bar run",
                ),
            )
        )
    label = f"start of {count(len(bars), 'worker')}"
    picture = svg(rows, viewBox=f"0 0 {WIDTH} {len(rows) * ROW}", class_="chart", role="img", aria_label=label)
    return div(picture, class_="scroll", tabindex=0, role="region", aria_label=label)


PAGE = Page(path="workers", show=show, needs="pool_views", name="Workers", key="w")
