"""The second seam: what a pool needs (Source) and what a producer or a person needs (Client).

The local Engine implements both. A pool, the command line and the Python API know these two and nothing behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import UNSET, UnsetType

from .model import Child, Enqueued, Kind, Spec
from .turn import Caller, LostPool, PoolInfo, Registered, Reply, Tie, Turn
from .view import (
    Attempt,
    Branch,
    Change,
    Edit,
    Event,
    Filter,
    JobView,
    LiveOutput,
    Page,
    PoolView,
    QueueView,
    Status,
    Why,
)


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

    def settings(self) -> dict[str, Any]: ...

    def stored_settings(self) -> dict[str, str]: ...

    def set_setting(self, name: str, text: str) -> tuple[str, Any]: ...

    def unset_setting(self, name: str) -> str: ...

    def close(self) -> None: ...
