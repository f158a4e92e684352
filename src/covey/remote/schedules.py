"""Schedules of a queue behind a server: one request each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import bodies
from ..core.schedule_views import NextTick, ScheduleBody, ScheduleView, TickView


class RemoteSchedules:
    """The part of `Remote` that is about schedules."""

    _ask: Callable[..., Any]

    def put_schedule(self, name: str, body: ScheduleBody) -> ScheduleView:
        view: ScheduleView = self._ask("put_schedule", body, name=name)
        return view

    def schedule(self, name: str) -> ScheduleView:
        view: ScheduleView = self._ask("schedule", name=name)
        return view

    def schedules(self) -> list[ScheduleView]:
        found: list[ScheduleView] = self._ask("schedules")
        return found

    def ticks(self, name: str, limit: int = 20) -> list[TickView]:
        found: list[TickView] = self._ask("ticks", query=bodies.TicksQuery(limit=limit), name=name)
        return found

    def next_ticks(self, name: str, count: int = 5) -> list[NextTick]:
        found: list[NextTick] = self._ask("next_ticks", query=bodies.NextQuery(n=count), name=name)
        return found

    def pause_schedule(
        self, name: str, *, reason: str | None = None, for_s: float | None = None, by: str | None = None
    ) -> ScheduleView:
        asked = bodies.PauseSchedule(reason=reason, for_s=for_s, by=by)
        view: ScheduleView = self._ask("pause_schedule", asked, name=name)
        return view

    def resume_schedule(self, name: str, *, catch_up: bool = False) -> ScheduleView:
        view: ScheduleView = self._ask("resume_schedule", bodies.ResumeSchedule(catch_up=catch_up), name=name)
        return view

    def run_schedule(self, name: str, *, overlap: str | None = None) -> TickView:
        asked = bodies.RunSchedule(overlap=overlap)  # type: ignore[arg-type]  # the server says what is wrong with it
        view: TickView = self._ask("run_schedule", asked, name=name)
        return view

    def backfill_schedule(
        self, name: str, start: str, end: str, *, limit: int = 500, dry_run: bool = False
    ) -> list[TickView]:
        asked = bodies.Backfill(start=start, end=end, limit=limit, dry_run=dry_run)
        found: list[TickView] = self._ask("backfill_schedule", asked, name=name)
        return found

    def remove_schedule(self, name: str, *, cancel_jobs: bool = False) -> int:
        query = bodies.RemoveScheduleQuery(cancel_jobs=cancel_jobs)
        counted: bodies.CancelledCount = self._ask("remove_schedule", query=query, name=name)
        return counted.cancelled
