"""The words of Covey as values. One data model from row to wire."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

State = Literal["scheduled", "blocked", "pending", "processing", "waiting", "failed", "completed", "dead", "cancelled"]
Kind = Literal["command", "sync", "async"]

STATES: tuple[State, ...] = (
    "scheduled",
    "blocked",
    "pending",
    "processing",
    "waiting",
    "failed",
    "completed",
    "dead",
    "cancelled",
)
ENDED: frozenset[str] = frozenset({"completed", "dead", "cancelled"})
KINDS: tuple[Kind, ...] = ("command", "sync", "async")

SHELL = "shell"  # the one built-in task
MAX_PAYLOAD = 1 << 20
MAX_INTERRUPTIONS = 10
LONELY_INTERRUPTIONS = 3  # from here on a job is claimed only for an idle worker


class Policy(Struct, frozen=True):
    """How a job is tried; copied into the job when it is enqueued."""

    max_attempts: int = 3
    timeout_s: float | None = None
    backoff_base: float = 2.0
    backoff_cap_s: float = 300.0
    jitter: bool = False


class Spec(Struct, kw_only=True, frozen=True):
    """A request to run a task, checked and ready to be stored."""

    task: str
    kind: Kind = "sync"
    args: str | None = None  # JSON text; None when the task takes none
    queue: str = "default"
    priority: int = 0
    delay_s: float | None = None
    run_at: int | None = None
    key: str | None = None
    if_exists: Literal["error", "return"] = "error"
    unique_key: str | None = None
    policy: Policy = Policy()
    cwd: str | None = None
    batch: str | None = None
    labels: dict[str, str] | None = None
    created_by: str | None = None
    keep_background: bool = False


class Enqueued(Struct, frozen=True):
    id: int
    existing: bool = False


class Row(Struct):
    """The part of a job that the rules look at."""

    id: int
    state: State
    fence: int
    attempts: int
    max_attempts: int
    interruptions: int
    pool: int | None
    phase: str
    backoff_base: float
    backoff_cap_s: float
    jitter: int
    parent_id: int | None
    root_id: int
    children_total: int
    children_unfinished: int
    children_failed: int
    joins: int
    on_error: str | None
    queue: str
    key: str | None


class Claim(Struct, array_like=True):
    """A job handed to a pool: what a worker needs, and the fence that its report must name."""

    id: int
    fence: int
    task: str
    kind: Kind
    attempt: int
    max_attempts: int
    timeout_s: float | None
    queue: str
    key: str | None
    cwd: str | None
    keep_background: int
    interruptions: int
    args: str | None


Outcome = Literal["success", "failure", "abort", "snooze", "taken_back", "stopped", "worker_lost", "gone"]


class Output(Struct, array_like=True):
    """What a run wrote: head and tail, and how much was dropped between them."""

    stdout: bytes = b""
    stderr: bytes = b""
    stdout_dropped: int = 0
    stderr_dropped: int = 0


class Report(Struct, array_like=True):
    """What became of one claim. Times are wall clock, for people; order is the fence's."""

    id: int
    fence: int
    outcome: Outcome
    started_at: int | None = None
    finished_at: int | None = None
    worker: str | None = None
    error: str | None = None
    detail: str | None = None
    exit_code: int | None = None
    result: str | None = None  # JSON text
    after_s: float | None = None  # Retry(after=…), Snooze(…)
    output: Output | None = None
    info: str | None = None


class Held(Struct, array_like=True):
    id: int
    fence: int


class Want(Struct, frozen=True):
    """What a pool, or one worker type of it, would take now: free places per kind, and how many in all."""

    queues: tuple[str, ...] | None  # None = every queue
    places: dict[str, int]
    limit: int
    idle: bool = True  # a worker stands idle: jobs that were interrupted often may come too
    bound: int | None = None  # how many commands and sync tasks together: they share the places of --count


class WorkerState(Struct, frozen=True):
    """One worker as people see it in `worker list`."""

    name: str
    kind: Kind
    state: Literal["starting", "idle", "busy", "stopping", "dead"]
    pid: int | None
    ticks: int | None
    started_at: int
    queue: str | None = None
    job_id: int | None = None
    fence: int | None = None
    busy_since: int | None = None
    done: int = 0
    failed: int = 0
    memory: int | None = None
    error: str | None = None


class PoolEvent(Struct, frozen=True):
    """Something that happened to a pool or to one of its workers, for people."""

    at: int
    kind: str
    worker: str | None = None
    text: str | None = None


class PoolInfo(Struct, frozen=True, kw_only=True):
    """Who a pool is: enough to tell whether it still lives, and to find what it leaves behind."""

    name: str
    host: str
    boot: str
    pid: int
    ticks: int
    queues: tuple[str, ...] | None
    kinds: tuple[Kind, ...]
    count: int
    version: str
    lease_s: float
    app: str | None = None
    types: dict[str, int] | None = None  # queue → workers, if it has worker types
    log: str | None = None  # its log file, on its host
    cgroup: str | None = None  # the control group that holds its processes, on its host


class Registered(Struct, frozen=True):
    pool: int
    database_id: str
    config: dict[str, Any]
    live: str = ""  # the directory where output of running jobs can be followed; "" = nowhere


class Turn(Struct, kw_only=True):
    """One numbered exchange of a pool with the engine."""

    pool: int
    database_id: str
    number: int
    reports: list[Report] = []
    wants: list[Want] = []  # one per worker type; none while it stops
    held: list[Held] | None = None  # with timed beats, and after a lost answer
    workers: list[WorkerState] | None = None
    given_up: dict[str, str] | None = None  # beside `workers`: what cannot start → why
    events: list[PoolEvent] = []
    draining: bool = False
    zygote: tuple[int, int] | None = None


class Reply(Struct):
    claims: list[Claim]
    cancels: list[Held]  # (id, fence of the claim): end these families, then report them gone
    refused: list[Held]  # reports that came too late: nothing was written for them
    stop: bool = False
    lost: bool = False  # this pool was given up: kill everything, register anew
    next_due_at: int | None = None
    drained: bool = False  # nothing left that `--drain` waits for


class LostPool(Struct, frozen=True):
    """A pool as another pool judges it."""

    id: int
    host: str
    boot: str
    pid: int
    ticks: int
    beat: int
    lease_s: float
    cgroup: str | None = None
