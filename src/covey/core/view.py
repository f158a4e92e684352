"""What people and programs see: the same words in the command line's JSON, in Python and over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

EARLIEST = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
LATEST = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z


def rfc3339(at: int | None) -> str | None:
    """Microseconds since the epoch as RFC 3339 in UTC; what no calendar holds is the nearest that one does."""
    if at is None:
        return None
    at = min(max(at, EARLIEST), LATEST)  # else one such row would break every page that it is on
    moment = datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ChildCounts(Struct, frozen=True):
    """A job's children, counted. `progress`: the share that has ended, null without children."""

    total: int = 0
    unfinished: int = 0
    failed: int = 0
    ended: int = 0
    progress: float | None = None


class JobView(Struct, kw_only=True):
    """A job as JSON. Absent is null; times are RFC 3339 in UTC; `max_retries` repeats `max_attempts`."""

    id: int
    key: str | None
    queue: str
    task: str
    command: str | None
    args: Any
    state: str
    phase: str
    priority: int
    attempts: int
    max_attempts: int
    max_retries: int
    run_at: str | None
    created_at: str | None
    updated_at: str | None
    started_at: str | None
    finished_at: str | None
    timeout: float | None
    cwd: str | None
    pool: int | None
    worker: str | None
    locked_by: str | None
    locked_until: str | None
    retry_at: str | None
    exit_code: int | None
    error: str | None
    result: Any
    parent_id: int | None
    root_id: int
    children: ChildCounts
    batch: str | None
    labels: dict[str, str] | None
    interruptions: int = 0
    info: Any = None
    kind: str = "sync"
    fence: int = 0
    depth: int = 0
    child_no: int | None = None  # its place among its siblings, from 0
    pool_name: str | None = None  # of the pool that runs it, or ran it last
    host: str | None = None  # where that is; http: a worker that took it over HTTP


class Branch(Struct):
    """A job and one page of its children."""

    job: JobView
    children: list[JobView]
    next: int | None  # pass as `after` for the page after; None on the last


class Attempt(Struct, kw_only=True):
    """One run that had something to say. `stdout` and `stderr` are text with anything unprintable replaced."""

    number: int
    fence: int
    outcome: str
    worker: str | None
    pool: int | None
    started_at: str | None
    finished_at: str | None
    exit_code: int | None
    error: str | None
    detail: str | None
    stdout: str
    stderr: str
    stdout_dropped: int
    stderr_dropped: int
    pool_name: str | None = None
    host: str | None = None


class LiveOutput(Struct, frozen=True):
    """What a running attempt has written since; the next question begins at these places."""

    fence: int
    stdout: bytes
    stderr: bytes
    out: int
    err: int


class Filter(Struct, kw_only=True, frozen=True):
    """Which jobs to list, newest first. `before` is the last id of the page before."""

    states: tuple[str, ...] = ()
    queue: str | None = None
    task: str | None = None
    batch: str | None = None
    ids: tuple[int, ...] | None = None
    before: int | None = None
    limit: int = 50


class Page(Struct):
    jobs: list[JobView]
    next: int | None  # pass as `before` for the page after; None on the last


class Change(Struct, frozen=True):
    """What became of one job that a person asked to change."""

    id: int
    state: str
    was: str
    new_id: int | None = None  # retry --again


class Edit(Struct, kw_only=True, frozen=True):
    """Only what is set is changed."""

    priority: int | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    run_at: int | UnsetType | None = UNSET  # None = now
    max_attempts: int | UnsetType = UNSET


class Event(Struct, kw_only=True):
    id: int
    at: str | None
    kind: str
    job_id: int | None
    pool: int | None
    worker: str | None
    text: str | None


class Why(Struct, kw_only=True):
    """Why a job is where it is, and what would move it."""

    id: int
    state: str
    reason: str
    advice: list[str]
    facts: dict[str, Any]


class QueueView(Struct, kw_only=True):
    name: str
    paused: bool
    resume_at: str | None
    serial: bool
    concurrency: int | None
    max_depth: int
    counts: dict[str, int]


class WorkerView(Struct, kw_only=True):
    """One worker. `kind` is what it runs (command, python), `mode` which functions (sync, async)."""

    id: str  # pool/name
    name: str
    pool: int
    host: str
    queue: str | None  # its worker type; None = whatever its pool serves
    kind: Literal["command", "python", "container"]
    mode: str | None
    state: Literal["starting", "idle", "busy", "stopping", "dead"]
    pid: int | None
    ticks: int | None
    started_at: str | None
    beat_age_s: float
    job_id: int | None
    fence: int | None
    busy_since: str | None
    done: int
    failed: int
    memory: int | None  # bytes, resident
    error: str | None


class PoolView(Struct, kw_only=True):
    id: int
    name: str
    host: str
    boot: str
    pid: int
    ticks: int
    queues: list[str] | None
    kinds: list[str]
    count: int
    types: dict[str, int] | None
    app: str | None
    log: str | None
    given_up: dict[str, str]  # what cannot start → why
    version: str
    beat_at: str | None
    beat_age_s: float
    lease_s: float
    registered_at: str | None
    state: Literal["running", "draining", "stopping"]
    held: int
    workers: list[WorkerView]


class Finding(Struct, kw_only=True, frozen=True):
    """Something about a queue that a person should know. A note is no reason to worry."""

    level: Literal["broken", "warning", "note"]
    text: str
    advice: str | None = None


class Status(Struct, kw_only=True):
    """The queue at a glance. `notes` are the findings as sentences."""

    database: str
    database_id: str
    schema: int
    durability: str
    version: str
    health: Literal["fine", "warning", "broken"]
    notes: list[str]
    findings: list[Finding]
    counts: dict[str, int]
    queues: list[QueueView]
    pools: int
    workers: int
    oldest_pending_s: float | None
    next_run_at: str | None
