"""Schedules: what comes by the clock, when it came last and when it comes next."""

from __future__ import annotations

from ...core.schedule_views import ScheduleView
from .html import Content, span
from .page import Page, Shown
from .parts import act, ago, badge, command_line, empty, grid, job_link, queue_link
from .visit import Visit

COLUMNS = (
    ("schedule", ""),
    ("when", "grow"),
    ("state", ""),
    ("next", ""),
    ("last", "w2"),
    ("missed", "num w1"),
    ("queue", "w1"),
    ("", "do"),
)
TONES = {"active": "good", "paused": "warn"}


def show(visit: Visit) -> Shown:
    found: list[ScheduleView] = visit.ask("schedules")
    if not found:
        return Shown(
            "Schedules", empty("None yet. ", command_line("covey schedule add NAME --cron '0 9 * * *' 'echo hello'"))
        )
    return Shown(
        "Schedules", grid(COLUMNS, ((f"schedule-{each.name}", _row(visit, each)) for each in found), label="schedules")
    )


def _row(visit: Visit, each: ScheduleView) -> list[Content]:
    last: Content = span("–", class_="dim")
    if each.last is not None:
        at = ago(each.last.tick, visit.now)
        last = [at, " ", job_link(visit, each.last.job)]
    return [
        span(each.name, class_="mono"),
        [each.when, span(f" · {each.tz}", class_="dim")],
        badge(each.state, TONES.get(each.state, "off")),
        ago(each.next, visit.now),
        last,
        f"{each.missed:,}" if each.missed else span("0", class_="dim"),
        queue_link(visit, each.queue),
        _buttons(visit, each),
    ]


def _buttons(visit: Visit, each: ScheduleView) -> Content:
    if not visit.may("run_schedule"):
        return None
    turn = ("resume_schedule", "resume") if each.state == "paused" else ("pause_schedule", "pause")
    return [act(visit, "run_schedule", "run now", schedule=each.name), " ", act(visit, *turn, schedule=each.name)]


PAGE = Page(path="schedules", show=show, needs="schedules", name="Schedules", key="c")
