"""How it went: jobs per minute, what waits, how long tasks wait and run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from ...core.view import RunView, Sample
from ...telemetry.prometheus import quantile
from .charts import series
from .html import Content, code, div, p, span
from .page import Page, Shown
from .parts import block, empty, grid, span_of, tabs
from .visit import Visit

MINUTE = 60_000_000
WAYS = {"1h": 60, "6h": 360, "24h": 1440, "7d": 10080}
POINTS = 120  # of a chart
MOST_TASKS = 50


def show(visit: Visit) -> Shown:
    way = visit.query.get("for", "1h")
    minutes = WAYS.get(way, 60)
    items = [(name, visit.url("metrics", for_=name), name == way) for name in WAYS]
    samples = [each for each in visit.engine.samples(visit.now // MINUTE - minutes) if visit.guest.may_see(each.queue)]
    runs = [run for run in visit.engine.latest_runs(visit.now - 15 * MINUTE) if visit.guest.may_see(run.queue)]
    return Shown(
        "Metrics",
        [
            div(tabs(items, label="how far back"), data_key="tabs"),
            *charts(samples),
            block(
                "Tasks of the last 15 minutes",
                _tasks(runs),
                key="tasks",
                aside=span("among the newest 20,000 jobs", class_="dim"),
            ),
            p("The same for programs: ", code("GET /metrics"), data_key="link", class_="dim"),
        ],
    )


def charts(samples: Sequence[Sample]) -> list[Content]:
    """Differences of what was written down minute by minute, of all queues together."""
    totals: dict[int, list[int]] = {}
    for each in samples:
        seen = totals.setdefault(each.minute, [0, 0, 0, 0])
        for place, value in enumerate((each.completed, each.dead, each.waiting, each.running)):
            seen[place] += value
    minutes = sorted(totals)
    if len(minutes) < 3:
        return [
            block(
                "Jobs per minute",
                empty("Not enough is known yet: how it stands is written down once a minute while a pool runs."),
                key="rate",
            )
        ]
    step = max(1, len(minutes) // POINTS)
    kept = minutes[::step] if minutes[-1] in minutes[::step] else [*minutes[::step], minutes[-1]]

    def rate(place: int) -> list[float]:
        pairs = itertools.pairwise(kept)
        return [max(0, totals[after][place] - totals[before][place]) / (after - before) for before, after in pairs]

    completed, dead = rate(0), rate(1)
    said = p(
        f"on average {sum(completed) / len(completed):,.1f} completed ",
        f"and {sum(dead) / len(dead):,.1f} given up a minute; ",
        f"at most {max(completed):,.1f} and {max(dead):,.1f}",
        class_="dim",
    )
    waiting, running = [totals[each][2] for each in kept], [totals[each][3] for each in kept]
    now = p(f"{waiting[-1]:,} waited and {running[-1]:,} ran at last", class_="dim")
    return [
        block(
            "Jobs per minute",
            said,
            series("completed and dead jobs per minute", kept[1:], ("completed", "", completed), ("dead", "bad", dead)),
            key="rate",
        ),
        block("Waiting", now, series("waiting jobs", kept, ("waiting", "", waiting)), key="waiting"),
    ]


def _tasks(runs: Sequence[RunView]) -> Content:
    if not runs:
        return empty("Nothing has run.")
    of: dict[tuple[str, str], list[RunView]] = defaultdict(list)
    for run in runs:
        of[run.queue, run.task].append(run)
    rows = []
    for (queue, task), some in sorted(of.items(), key=lambda pair: -len(pair[1]))[:MOST_TASKS]:
        waits = sorted((run.begin - run.ready) / 1e6 for run in some)
        took = sorted((run.end - run.begin) / 1e6 for run in some if run.end is not None)
        bad = sum(run.state in ("dead", "failed") for run in some)
        cells: list[Content] = [
            span(task, class_="mono"),
            queue,
            f"{len(some):,}",
            f"{bad:,}" if bad else span("0", class_="dim"),
        ]
        for values in (waits, took):
            cells += [span_of(quantile(values, share)) if values else span("–", class_="dim") for share in (0.5, 0.95)]
        rows.append((f"task-{queue}-{task}", cells))
    columns = (
        ("task", "grow"),
        ("queue", "w2"),
        ("runs", "num"),
        ("badly", "num w2"),
        ("wait 50 %", "num w1"),
        ("wait 95 %", "num"),
        ("run 50 %", "num w1"),
        ("run 95 %", "num"),
    )
    return grid(columns, rows, label="tasks")


PAGE = Page(path="metrics", show=show, needs="metrics", name="Metrics", key="m")
