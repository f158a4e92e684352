"""A job as values, from what was asked for to its report: one data model from row to wire."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

State = Literal["scheduled", "blocked", "pending", "processing", "waiting", "failed", "completed", "dead", "cancelled"]
Kind = Literal["command", "sync", "async"]
Phase = Literal["run", "join"]
Mode = Literal["concurrent", "serial"]
OnError = Literal["wait", "cancel", "collect"]
Relation = Literal["child", "sibling", "after"]
When = Literal["success", "always"]

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
MODES: tuple[Mode, ...] = ("concurrent", "serial")
ON_ERROR: tuple[OnError, ...] = ("wait", "cancel", "collect")

SHELL = "shell"  # the one built-in task
MAX_PAYLOAD = 1 << 20
MAX_INTERRUPTIONS = 10
LONELY_INTERRUPTIONS = 3  # from here on a job is claimed only for an idle worker
MAX_DEPTH = 1  # of trees whose queue says nothing else: children, but no grandchildren
MAX_FAILED = 100  # siblings that did not complete, as a run is told of them
MAX_OUTCOMES = 16 << 20  # bytes of children's results that one join is handed; it must ask for the rest


class Policy(Struct, frozen=True):
    """How a job is tried; copied into the job when it is enqueued."""

    max_attempts: int = 3
    timeout_s: float | None = None
    backoff_base: float = 2.0
    backoff_cap_s: float = 300.0
    jitter: bool = False


class Spec(Struct, kw_only=True, frozen=True, omit_defaults=True):
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
    joins: bool = False  # once its children have ended it runs a second time, as a join
    on_error: OnError = "wait"  # what a child that did not complete means for the others
    child_mode: Mode | None = None  # None: whatever its run says
    tree_timeout_s: float | None = None  # how long the job and all its descendants may take together


class Spawn(Struct, array_like=True, frozen=True):
    """A job that a run asks for. It exists if, and only if, that run's success is written.

    ``child`` of this job; ``sibling``: one more child of this job's parent; ``after``: a top-level job that is blocked
    until this job's root has ended (an uncle). The spec's own queue and priority do not count here.
    """

    relation: Relation
    spec: Spec
    queue: str | None = None  # None: the one of the job that spawns it
    priority: int | None = None  # None: that of the job that spawns it
    when: When = "success"  # after: run once the root has completed, or however it ended
    within: tuple[str, ...] | None = None  # set by a server: who asks may see these queues only


class Enqueued(Struct, frozen=True):
    id: int
    existing: bool = False


class JobRow(Struct):
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
    priority: int = 0
    run_at: int | None = None
    seq: int = 0
    depth: int = 0
    max_depth: int = MAX_DEPTH
    child_no: int | None = None
    child_mode: Mode | None = None
    lane: int | None = None  # None: its queue is not serial; 0: it may pass; else the root that must own the lane


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
    priority: int = 0
    phase: Phase = "run"
    depth: int = 0
    max_depth: int = MAX_DEPTH  # spawning a child is refused where depth + 1 would be more
    parent_id: int | None = None
    root_id: int = 0
    joins: int = 0
    child_mode: Mode | None = None
    tree_deadline_at: int | None = None
    children: str | None = None  # a join: JSON text of list[Child], in the order of spawning
    failed_siblings: str | None = None  # a child whose parent has failed ones: JSON text of list[Child], the first 100


class Child(Struct, frozen=True):
    """How a child ended, as its parent's join sees it."""

    id: int
    key: str | None
    task: str
    state: State
    result: Any = None
    error: str | None = None
    left_out: bool = False  # the results were too large together: ask for this one by its id


RunOutcome = Literal["success", "failure", "abort", "snooze", "taken_back", "stopped", "worker_lost", "gone"]


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
    outcome: RunOutcome
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
    spawned: list[Spawn] | None = None  # with a success; any other outcome has spawned nothing
    child_mode: Mode | None = None  # how the spawned children run; None: as the job was enqueued, else concurrent
    joins: bool | None = None  # whether the task has a join; None: as the job was enqueued
    on_error: OnError | None = None  # None: as the job was enqueued
