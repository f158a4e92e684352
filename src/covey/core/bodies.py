"""What requests and answers over HTTP hold, beside the values of model and view."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .model import Child, Kind, Spec, State
from .turn import Caller, Reply
from .view import JobView

MAX_WAIT_S = 60.0
MOST_JOBS = 100_000  # in one request

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # of a job, a pool, a fence
Limit = Annotated[int, Meta(ge=1, le=10_000)]  # rows in one answer
Seconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_S)]  # of a wait
Ref = Annotated[str, Meta(min_length=1)] | Number
RequestId = Annotated[str, Meta(min_length=1, max_length=200)]  # of the asker's own choosing


class Said(Struct, kw_only=True, forbid_unknown_fields=True):
    """What somebody asks. A field that nobody knows is a mistake that must not pass in silence."""


class Health(Struct, frozen=True):
    status: Literal["ready", "starting", "unavailable"]
    version: str


class Alive(Struct, frozen=True):
    """The server runs; of its queue that says nothing."""

    status: Literal["alive"]
    version: str


class Ready(Struct, frozen=True):
    """Whether the queue can be used. The reason names no path and no address: everybody may ask."""

    status: Literal["ready", "unavailable"]
    version: str
    reason: str | None = None


class ServerInfo(Struct, frozen=True):
    """Whose server this is: a pool or a run that finds it knows whether it is the right one."""

    database_id: str
    version: str
    protocol: int
    pid: int
    now: int | None = None  # by the queue's clock


class Failure(Struct, frozen=True):
    code: str
    message: str
    job_id: int | None = None


class Failed(Struct, frozen=True):
    error: Failure


# ── the worker protocol ─────────────────────────────────────────────────────────────────────────────────────────────


class Answered(Struct, frozen=True):
    """The answer to a turn; `seen` goes into the wait that follows, so that nothing rings unheard between the two."""

    reply: Reply
    seen: int


class Wait(Said):
    queues: tuple[str, ...] | None = None  # None: any; none at all: only to be told of a stop or a cancel
    kinds: tuple[Kind, ...] = ("command", "sync", "async")
    timeout_s: Seconds = 30.0
    seen: int | None = None
    turn: int | None = None  # the last one that was begun: a question that a later one has overtaken is pointless


class Woken(Struct, frozen=True):
    changed: bool
    seen: int


class Reap(Said):
    beat: int  # -1: of a pool that is not known any more
    reason: str | None = None  # how it died, if that is known


class Reaped(Struct, frozen=True):
    jobs: int


# ── one job at a time, for workers in any language ──────────────────────────────────────────────────────────────────


class ClaimAsk(Said):
    queues: tuple[str, ...] | None = None
    kinds: Annotated[tuple[Kind, ...], Meta(min_length=1)] = ("command",)
    lease_s: Annotated[float, Meta(ge=3, le=86_400)] = 60.0
    name: Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[ -~]+$")] = "worker"
    request: RequestId | None = None  # asked again under the same name, what was lent is lent, not one job more


class WaitParameter(Said):
    wait: Seconds = 0.0


class Lent(Struct, frozen=True):
    """A job for one worker. Each later request about it names `pool` and `fence`."""

    pool: int
    fence: int
    lease_s: float  # a heartbeat is due before that; a third of it is a good pace
    attempt: int
    job: JobView
    children: list[Child] | None = None  # a join: how they ended, in the order of spawning
    timeout_s: float | None = (
        None  # the run is stopped when it has taken so long; None: it may take as long as it likes
    )


class Claimed(Struct, frozen=True):
    lent: Lent | None  # None: nothing was there in time


class Holding(Said):
    pool: Number
    fence: Number


class Still(Struct, frozen=True):
    cancelled: bool  # stop it, then report it with any outcome
    reason: str | None = None  # why: "cancelled", or that it timed out


class Released(Struct, frozen=True):
    """The job is handed back, at no cost to its attempts."""

    id: int


class Complete(Said):
    pool: Number
    fence: Number
    result: Any = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""


class Fail(Said):
    pool: Number
    fence: Number
    error: str
    detail: str | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    abort: bool = False  # never again: the job is dead
    retry_after_s: Annotated[float, Meta(ge=0, lt=1e9)] | None = None


class SpawnAsk(Said):
    pool: Number
    fence: Number
    jobs: Annotated[list[dict[str, Any]], Meta(max_length=MOST_JOBS)]
    relation: Literal["child", "sibling", "after"] = "child"
    after: int | None = None  # how many were spawned before, as the last answer said: so the same twice counts once


class Spawned(Struct, frozen=True):
    staged: int  # of this run in all: they exist once it completes


class OutputAsk(Said):
    pool: Number
    fence: Number
    stdout: str = ""
    stderr: str = ""
    info: str | UnsetType = UNSET  # JSON: what the run says of itself by now, instead of what it said before


class Outcome(Struct, frozen=True):
    id: int
    state: str


# ── producers and people ────────────────────────────────────────────────────────────────────────────────────────────


class Enqueue(Said):
    """Specs as Covey's own clients make them."""

    specs: Annotated[list[Spec], Meta(max_length=MOST_JOBS)]
    request: RequestId | None = None
    caller: Caller | None = None  # who waits, if the jobs shall end with him


class Tied(Struct, frozen=True):
    tied: bool  # False: the job ends with nobody (any more)


class Abandon(Said):
    beat: Number  # of the caller, as it was seen to stand still


class Abandoned(Struct, frozen=True):
    cancelled: bool


class EnqueueJobs(Said):
    """Jobs as people write them: the objects that `covey enqueue` takes, one or many; all are stored or none is."""

    jobs: Annotated[list[dict[str, Any]], Meta(max_length=MOST_JOBS)]
    request: RequestId | None = None  # the same again within an hour returns the same answer and stores nothing


class Refs(Said):
    refs: list[Ref]


class RetryAsk(Said):
    refs: list[Ref]
    again: bool = False
    all: bool = False


class RemoveAsk(Said):
    refs: list[Ref]
    force: bool = False


class WaitFor(Said):
    ids: list[Number]
    any_of: bool = False
    timeout_s: Seconds = 30.0


class Ended(Struct, frozen=True):
    ended: bool


class JobsQuery(Said):
    state: tuple[State, ...] = ()
    queue: str | None = None
    task: str | None = None
    batch: str | None = None
    before: Number | None = None
    limit: Limit = 50


class TreeQuery(Said):
    limit: Limit = 50
    after: Number | None = None


class EventsQuery(Said):
    limit: Limit = 100


class PoolEventsQuery(Said):
    pool: Number | None = None
    after: Number = 0
    limit: Limit = 100


class OutputQuery(Said):
    out: Number = 0  # bytes of each stream that were read already
    err: Number = 0
    fence: Number | None = None


class StreamQuery(Said):
    job: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(max_length=100)] = ()


class Pause(Said):
    for_s: Annotated[float, Meta(ge=0, lt=1e10)] | None = None


class QueueRules(Said):
    serial: bool | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None = UNSET
    max_depth: Annotated[int, Meta(ge=0, le=1000)] | UnsetType = UNSET


class StopPools(Said):
    pools: list[Number]


class SettingText(Said):
    value: str


class SettingValue(Struct, frozen=True):
    name: str
    value: Any


class Settings(Struct, frozen=True):
    effective: dict[str, Any]
    stored: dict[str, str]


class Nothing(Struct, frozen=True):
    """Done; there is nothing to say."""
