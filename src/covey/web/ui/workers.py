"""Pools, their workers, what each runs; how they started."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...core.bodies import PoolEventsQuery
from ...core.view import Event, PoolView, WorkerView
from .charts import gantt
from .html import Content, Html, div, p, span, strong
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
        ("what ran", visit.url("workers", tab="gantt"), tab == "gantt"),
        ("start-up", visit.url("workers", tab="start"), tab == "start"),
        ("events", visit.url("workers", tab="events"), tab == "events"),
    ]
    parts: list[Content] = [div(tabs(items, label="workers"), data_key="tabs")]
    if tab == "events":
        events: list[Event] = visit.ask("pool_events", query=PoolEventsQuery(limit=EVENTS))
        parts.append(block("What happened to pools and workers", event_list(visit, events), key="events"))
    elif tab == "gantt":
        parts += _gantt(visit)
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
    for name, seen in bars[:200]:
        begin, there, end = seen["starting"], seen.get("registered"), seen.get(ENDS)
        until = end or there or begin
        middle = there or until
        words = f"{name}: ready after {span_of(until - begin)}" if end else f"{name}: not ready"
        rows.append((name, [(begin, middle, "wait", words), (middle, until, "run", words)]))
    return gantt(f"start of {count(len(bars), 'worker')}", rows, first, first + took)


# ── what they did ───────────────────────────────────────────────────────────────────────────────────────────────────

BACK = {"1m": 60, "5m": 300, "15m": 900}


def _gantt(visit: Visit) -> list[Content]:
    """A row for each worker that ran anything, and how many worked at a time."""
    way = visit.query.get("for", "5m")
    back = BACK.get(way, 300)
    last = visit.now / 1e6
    first = last - back
    runs = visit.engine.latest_runs(int(first * 1e6))
    items = [(name, visit.url("workers", tab="gantt", for_=name), name == way) for name in BACK]
    chosen = div(tabs(items, label="how far back"), data_key="back")
    pools: list[PoolView] = visit.ask("pool_views")
    workers = sum(worker.state != "dead" for pool in pools for worker in pool.workers)
    holders = {worker.job_id: (worker.name, pool.name) for pool in pools for worker in pool.workers if worker.job_id}
    rows: dict[str, list[tuple[float, float, str, str]]] = {}
    busy = waited = 0.0
    for run in runs:
        worker, pool = (run.worker, run.pool) if run.end is not None else holders.get(run.job, (run.worker, run.pool))
        begin, end = run.begin / 1e6, (run.end or visit.now) / 1e6
        tone = {"completed": "good", "processing": "run", "dead": "bad", "failed": "warn"}.get(run.state, "off")
        what = f"job {run.job} {run.task}: {span_of(max(0.0, end - begin))}, {run.state}"
        rows.setdefault(" ".join(filter(None, (pool, worker))) or "?", []).append((begin, end, tone, what))
        busy += max(0.0, end - max(begin, first))
        waited += max(0.0, begin - run.ready / 1e6)
    if not rows:
        return [chosen, empty("Nothing ran in that time.")]
    spans = [(begin, end) for some in rows.values() for begin, end, *_ in some]
    began = max(first, min(begin for begin, _ in spans))
    took = max(0.001, max(end for _, end in spans) - began)
    said = p(
        strong(f"{busy / took:.1f} of {max(len(rows), workers)} workers busy"),
        f" on average over {span_of(took)}: {count(len(runs), 'run')}, ",
        f"{span_of(busy)} of work, which had waited {span_of(waited / len(runs))} on average.",
        data_key="said",
    )
    return [
        chosen,
        said,
        block("What ran", gantt("what workers ran", sorted(rows.items())[:100], first, last), key="gantt"),
    ]


PAGE = Page(path="workers", show=show, needs="pool_views", name="Workers", key="w")
