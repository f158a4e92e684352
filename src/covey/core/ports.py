"""The second seam: what a pool needs (Source), a producer or a person (Client), a server (Backend).

The local Engine implements all three. A pool, the command line, the Python API and the server know these and nothing
behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from ..errors import CoveyError
from .model import Child, Claim, Enqueued, Kind, Output, RunOutcome, Spawn, Spec
from .schedule_views import NextTick, ScheduleBody, ScheduleView, TickView
from .tokens import TokenRow, TokenView
from .turn import Caller, Loan, LostPool, PendingWork, PoolInfo, Registered, Reply, Tie, Turn
from .view import (
    Attempt,
    Branch,
    CachePruned,
    CacheStatus,
    CacheWhy,
    Change,
    Counts,
    Edit,
    Event,
    Filter,
    Finding,
    JobView,
    LiveOutput,
    Page,
    PoolView,
    QueueView,
    RunView,
    Sample,
    Status,
    Why,
)

Bell = Literal["end", "pool"]  # what can be heard: jobs that end, something for pools to do


class Listener(Protocol):
    """Hears the bell. Polling is the truth; this only saves the wait."""

    def wait(self, timeout_s: float) -> bool: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class QueuePlace(NamedTuple):
    """Where a queue is, as its clients see it."""

    url: str  # what a person would pass as --db, without a password
    side: str  # a directory of the queue's own on this host: live output, logs; "" where it has none
    served: bool  # behind a server; else it is open in this very process


class Source(Protocol):
    """Where a pool gets its claims."""

    is_served: bool  # behind a server: it beats for whoever waits, and wakes one of them when something is due
    longest_wait_s: float  # what one `wait` may take
    look_s: float  # how often a pool looks whether its neighbours still live

    @property
    def database_id(self) -> str: ...

    def settings(self) -> dict[str, Any]: ...

    def register(self, info: PoolInfo) -> Registered: ...

    def turn(self, turn: Turn) -> Reply:
        """Reports in, claims out, one transaction. Never blocks for work."""
        ...

    def wait(
        self, pool: int, queues: tuple[str, ...] | None, timeout_s: float, kinds: tuple[Kind, ...] | None = None
    ) -> bool:
        """True once something may have changed for this pool, False after the time-out. A hint without side effects.

        Jobs of these queues and kinds have a free place here (None: of any). No queue at all: the pool is full.
        """
        ...

    def wake(self) -> None:
        """A `wait` of another thread returns at once."""
        ...

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        """From now on ``work`` is done in the middle of each turn, by the thread that takes it, while others work.

        Piece by piece, until the others are ready: each says after how many seconds the next may come, None if there
        is none. False if that cannot be here.
        """
        ...

    def pools(self) -> list[LostPool]: ...

    def orphaned_pools(self) -> list[int]:
        """Pools that still hold jobs although their row is gone."""
        ...

    def reap(self, pool: int, beat: int, reason: str | None = None) -> int:
        """Hands back everything that a dead pool held, unless it has beaten since. How many jobs that were.

        ``reason`` is how it died, if that is known: it is told with each of the jobs.
        """
        ...

    def callers(self) -> list[Tie]:
        """Jobs that shall end with whoever asked for them, and who that is."""
        ...

    def abandon(self, job: int, beat: int) -> bool:
        """The job is cancelled because its caller is gone, unless he has beaten since. Whether it was."""
        ...

    def show_output(
        self, pool: int, job: int, fence: int, stdout: str, stderr: str, *, info: str | None = None
    ) -> None:
        """More of what a run writes that has no directory at the queue: it can be followed from now on.

        ``info``: what it says of itself by now, as JSON, if that has changed.
        """
        ...

    def failed_siblings(self, pool: int, job: int, fence: int) -> list[Child]:
        """Of a child that this pool runs: the others of its parent that have ended otherwise than well by now."""
        ...

    def leave(self, pool: int) -> None: ...


class Client(Protocol):
    """What can be asked of a queue."""

    @property
    def database_id(self) -> str: ...

    @property
    def place(self) -> QueuePlace: ...

    def enqueue(
        self, specs: Sequence[Spec], *, request: str | None = None, caller: Caller | None = None
    ) -> list[Enqueued]:
        """All of them are stored, in order, or none is. With a ``caller`` the new ones end with him."""
        ...

    def still_here(self, job: int) -> bool:
        """The caller of that job is alive as of now; False if it is tied to nobody (any more)."""
        ...

    def let_go(self, job: int) -> None:
        """The job ends with nobody any longer."""
        ...

    def job(self, ref: str | int) -> JobView: ...

    def jobs(self, wanted: Filter) -> Page: ...

    def history(self, ref: str | int) -> list[Attempt]: ...

    def wait_for(self, ids: Sequence[int], timeout_s: float | None, *, any_of: bool = False) -> bool:
        """True when all (or any) of them have ended, False when time ran out first."""
        ...

    def listen(self) -> Listener | None:
        """Hears when jobs end; None where nothing rings, and one has to look."""
        ...

    def output(self, ref: str | int, *, fence: int | None = None, out: int = 0, err: int = 0) -> LiveOutput:
        """What the running attempt has written beyond these places, as far as the queue can see it."""
        ...

    def cancel(self, refs: Sequence[str | int]) -> list[Change]: ...

    def retry(self, refs: Sequence[str | int], *, again: bool = False, all: bool = False) -> list[Change]: ...

    def edit(self, ref: str | int, edit: Edit) -> JobView: ...

    def remove(self, refs: Sequence[str | int], *, force: bool = False) -> list[Change]: ...

    def why(self, ref: str | int) -> Why: ...

    def events(self, ref: str | int | None = None, limit: int = 100) -> list[Event]: ...

    def pool_events(self, pool: int | None = None, *, after: int = 0, limit: int = 100) -> list[Event]:
        """What happened to pools and workers, newest first; of one pool, or later than the event ``after``."""
        ...

    def status(self) -> Status: ...

    def queues(self) -> list[QueueView]: ...

    def pause(self, queue: str, for_s: float | None = None) -> None: ...

    def resume(self, queue: str) -> None: ...

    def set_queue(
        self,
        queue: str,
        *,
        serial: bool | UnsetType = UNSET,
        concurrency: int | UnsetType | None = UNSET,
        max_depth: int | UnsetType = UNSET,
    ) -> None: ...

    def tree(self, ref: str | int, limit: int = 50, after: int | None = None) -> Branch:
        """A job and one page of its children, in the order of spawning; ``after`` is the page before's ``next``."""
        ...

    def pool_views(self) -> list[PoolView]: ...

    def stop_pools(self, pools: Sequence[int]) -> None: ...

    def put_schedule(self, name: str, body: ScheduleBody) -> ScheduleView:
        """It is as the body says, from now on. The same again changes nothing."""
        ...

    def schedule(self, name: str) -> ScheduleView: ...

    def schedules(self) -> list[ScheduleView]: ...

    def ticks(self, name: str, limit: int = 20) -> list[TickView]: ...

    def next_ticks(self, name: str, count: int = 5) -> list[NextTick]: ...

    def pause_schedule(
        self, name: str, *, reason: str | None = None, for_s: float | None = None, by: str | None = None
    ) -> ScheduleView: ...

    def resume_schedule(self, name: str, *, catch_up: bool = False) -> ScheduleView: ...

    def run_schedule(self, name: str, *, overlap: str | None = None) -> TickView: ...

    def backfill_schedule(
        self, name: str, start: str, end: str, *, limit: int = 500, dry_run: bool = False
    ) -> list[TickView]: ...

    def remove_schedule(self, name: str, *, cancel_jobs: bool = False) -> int:
        """How many jobs were cancelled with it."""
        ...

    def cache_status(self) -> CacheStatus: ...

    def explain_cache(self, ref: str | int) -> CacheWhy: ...

    def prune_cache(self, max_bytes: int | None = None) -> CachePruned: ...

    def settings(self) -> dict[str, Any]: ...

    def stored_settings(self) -> dict[str, str]: ...

    def set_setting(self, name: str, text: str) -> tuple[str, Any]: ...

    def unset_setting(self, name: str) -> str: ...

    def close(self) -> None: ...


class Backend(Client, Source, Protocol):
    """What a server needs of the queue that it serves, beyond what it passes on: for many who ask at once."""

    clock: Callable[[], int]  # the queue's time

    def within(self, limit_s: float) -> AbstractContextManager[None]:
        """What is asked in the block only reads, and raises TooLong when it has taken so many seconds in all."""
        ...

    def enqueue(
        self,
        specs: Sequence[Spec],
        *,
        request: str | None = None,
        caller: Caller | None = None,
        token: int = 0,
        within: tuple[str, ...] | None = None,
    ) -> list[Enqueued]:
        """``token`` and ``within``: who asks, and the only queues that he may see."""
        ...

    def token_rows(self) -> list[TokenRow]:
        """Who may come in, with digests."""
        ...

    def tokens(self) -> list[TokenView]:
        """All that were ever made, without secrets."""
        ...

    # Pools elsewhere.

    def turns(self, turns: Sequence[Turn]) -> list[Reply | CoveyError]:
        """The turns of several pools, in this order, in one transaction; who is refused or fails hinders nobody."""
        ...

    def beat(self, pools: Sequence[int]) -> set[int]:
        """These pools are alive as of now, whatever their turns. Those among them that were given up meanwhile."""
        ...

    def pending_work(self) -> PendingWork:
        """What there is to do for pools, and for whom."""
        ...

    def listen(self, bell: Bell = "end") -> Listener | None: ...

    # Jobs that are lent one by one.

    def lend(self, info: PoolInfo) -> tuple[int, Claim] | None:
        """(pool, claim) of a new loan; None if there is nothing to be had."""
        ...

    def renew(self, job: int, pool: int, fence: int) -> str | None:
        """The lease begins anew; why the run must be stopped, if it must. LeaseLost if it is somebody else's by now."""
        ...

    def release(self, job: int, pool: int, fence: int) -> None:
        """The job is handed back at no cost."""
        ...

    def stage(self, job: int, pool: int, fence: int, spawned: Sequence[Spawn], after: int | None = None) -> int:
        """These jobs come into being with the run's success. How many there are of that run by now."""
        ...

    def settle(self, /, job: int, pool: int, fence: int, outcome: RunOutcome, **fields: object) -> None:
        """The run is reported and the loan is over."""
        ...

    def overdue_loans(self) -> list[Loan]: ...

    def time_out(self, loan: Loan, output: Output | None = None) -> None:
        """The run has failed for its time-out, unless its borrower was faster."""
        ...

    def outcomes(self, parent: int) -> str:
        """How the children of a join have ended, as JSON."""
        ...

    def shown_output(self, job: int, fence: int) -> tuple[bytes, bytes]:
        """All that was shown of a run."""
        ...

    def hide_output(self, job: int, fence: int) -> None:
        """The run has ended: what it wrote is in its history."""
        ...

    # What many look at.

    def ended(self, ids: Sequence[int]) -> set[int]:
        """Those of them that have ended, or are no longer there."""
        ...

    def jobs_of(self, refs: Sequence[str]) -> dict[str, JobView]:
        """Those of these jobs that are there, by the id or key as it was given."""
        ...

    def queues_of(self, refs: Sequence[str]) -> dict[str, str]: ...

    def counts(self) -> Counts:
        """How many jobs of each queue are in each state."""
        ...

    def counted_queues(self, counts: Counts) -> list[QueueView]:
        """The queues as they are now, with what was counted before."""
        ...

    def oldest(self) -> dict[str, tuple[int | None, int | None]]:
        """Of each queue since when the oldest job waits that could run, and since when the oldest run lasts."""
        ...

    def samples(self, since: int) -> list[Sample]:
        """How each queue stood minute by minute, from the minute ``since`` on."""
        ...

    def ever_ended(self) -> tuple[Counts, Counts]:
        """(How many jobs of each queue are in each state, how many of each state were removed), ever."""
        ...

    def latest_runs(self, since: int, most: int = 20_000) -> list[RunView]:
        """What ran since that instant, among the newest jobs: whatever there is to see without an index."""
        ...

    def moment(self) -> Any:
        """As long as it is the same, nobody else has written anything."""
        ...

    def disk(self) -> list[Finding]:
        """What is wrong with the room on the disks of this host."""
        ...
