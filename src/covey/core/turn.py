"""What pools and the engine say to each other: who a pool is, a turn and its reply, what there is to do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from .model import ENDED, Claim, Kind, Report, State

MAX_REPORTS = 100_000  # in one turn, and of whatever else it lists …
MAX_HELD = 1_000_000  # … but for what its pool holds


class Held(Struct, array_like=True):
    id: int
    fence: int


class Capacity(Struct, frozen=True):
    """How many more jobs of each kind a pool, or one worker type of it, can take now, and how many in all."""

    queues: tuple[str, ...] | None  # None = every queue
    places: dict[str, int]
    limit: int
    idle: bool = True  # a worker stands idle: jobs that were interrupted often may come too
    bound: int | None = None  # how many commands and sync tasks together: they share the places of --count
    root: int | None = None  # only jobs of that tree


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
    ticket: str | None = None  # of this registration: with the same one again it is the same pool


class Caller(Struct, frozen=True, kw_only=True):
    """Who waits for a job that shall end with him: enough to tell whether he still lives."""

    host: str
    boot: str
    pid: int
    ticks: int
    lease_s: float


class Tie(Struct, frozen=True):
    """A job and its caller, as a pool judges him."""

    job: int
    host: str
    boot: str
    pid: int
    ticks: int
    beat: int
    lease_s: float
    queue: str | None  # None: the job is no more
    state: State | None

    @property
    def is_over(self) -> bool:
        """Nobody needs to watch any longer."""
        return self.state is None or self.state in ENDED


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
    reports: Annotated[list[Report], Meta(max_length=MAX_REPORTS)] = []
    wants: Annotated[list[Capacity], Meta(max_length=MAX_REPORTS)] = []  # one per worker type; none while it stops
    held: Annotated[list[Held], Meta(max_length=MAX_HELD)] | None = None  # with timed beats, and after a lost answer
    workers: Annotated[list[WorkerState], Meta(max_length=MAX_REPORTS)] | None = None
    given_up: dict[str, str] | None = None  # beside `workers`: what cannot start → why
    events: Annotated[list[PoolEvent], Meta(max_length=MAX_REPORTS)] = []
    draining: bool = False
    zygote: tuple[int, int] | None = None


class Reply(Struct):
    claims: list[Claim]
    cancels: list[Held]  # (id, fence of the claim): end these families, then report them gone
    refused: list[Held]  # reports that came too late: nothing was written for them
    stop: bool = False
    lost: bool = False  # this pool was given up: kill everything, register anew
    next_due_at: int | None = None  # when something happens by itself, by the queue's clock …
    now: int = 0  # … which shows this
    drained: bool = False  # nothing left that `--drain` waits for


class PendingWork(Struct, frozen=True):
    """What there is for pools to do at one moment: enough to wake those whom it concerns."""

    ready: list[tuple[str, str, int]]  # (queue, kind, how many could be claimed: at most 1,000, none of a paused queue)
    stops: set[int]  # pools that were asked to stop
    cancels: dict[int, set[tuple[int, int]]]  # pool → (id, fence of the claim) of what it must end
    due_at: int | None  # when something happens by itself, by the queue's clock; what is over waits for any turn …
    now: int  # … which shows this


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
    name: str = ""
