"""Schedules and ticks as their tables have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from .schedules import ScheduleRow


class StoredSchedule(Struct, frozen=True):
    """A row of the table."""

    id: int
    name: str
    source: Literal["code", "api"]
    app: str | None
    digest: str
    version: int
    spec: str
    job: str
    queue: str
    catch_up: str
    most: int
    window_s: float
    overlap: str
    jitter_s: float
    starts_at: int | None
    ends_at: int | None
    pause_after: int | None
    next_at: int | None
    fire_at: int | None
    last_tick: int | None
    last_job: int | None
    last_success: int | None
    missed: int
    skipped: int
    errors: int
    forgotten_to: int | None
    paused_at: int | None
    paused_by: str | None
    pause_note: str | None
    resume_at: int | None
    retired_at: int | None
    created_at: int
    created_by: str | None
    updated_at: int

    def row(self) -> ScheduleRow:
        """What the rules look at."""
        from .schedules import ScheduleRow, When

        return ScheduleRow(
            name=self.name,
            when=msgspec.json.decode(self.spec, type=When),
            catch_up=self.catch_up,  # type: ignore[arg-type]
            most=self.most,
            window_s=self.window_s,
            overlap=self.overlap,  # type: ignore[arg-type]
            jitter_s=self.jitter_s,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
            pause_after=self.pause_after,
            next_at=self.next_at,
            fire_at=self.fire_at,
        )

    def is_paused(self, now: int) -> bool:
        return self.paused_at is not None and (self.resume_at is None or self.resume_at > now)

    def state(self, now: int) -> str:
        if self.retired_at is not None:
            return "retired"
        if self.is_paused(now):
            return "paused"
        return "active" if self.fire_at is not None else "done"


class StoredTick(Struct, frozen=True):
    tick: int
    at: int
    decision: str
    until: int | None
    job_id: int | None
    note: str | None
    state: str | None  # of its job; None: it has none, or not any more
