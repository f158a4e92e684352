"""The first seam: what differs between databases. One `Store` stands on it; what only PostgreSQL does is not here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..core.ports import Listener as Listener
from ..errors import Undone
from .time_limit import Limit

Params = Mapping[str, Any]
STILL_S = 30.0  # a client may compute for long between two statements; a pool never does (engine/pools.STILL_S)


class KeyTaken(Undone):
    """A key was taken by somebody else between the look and the insert."""


class Dialect(Protocol):
    name: str  # names the override file and the migrations
    url: str  # what a person would pass as --db, without a password
    side: str  # a directory of the queue's own on this host: live output, logs; "" where it has none
    prefix: str  # before every table's name
    limit: Limit | None  # for how long what is asked now may take

    def transaction(
        self, *, marked: bool = True, alone: bool = False, wait_s: float | None = None, still_s: float = STILL_S
    ) -> AbstractContextManager[None]:
        """The only way to write: alone (or with row locks), committed when the block ends, undone when it raises.

        ``marked``: leaves a mark by which a commit whose answer was lost is known; without it the caller must cope.
        ``alone``: no other transaction writes meanwhile, whatever the database.
        ``wait_s``: for how long it waits for somebody's lock, where others would wait behind it; then it raises Busy.
        ``still_s``: for how long it may say nothing (frozen, or its host cut off) before its locks are taken from it.
        Raises Undone when the database gave it up and the same again may well succeed.
        """
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Several reads that see one moment."""
        ...

    def query(self, sql: str, params: Params) -> list[tuple[Any, ...]]:
        """The rows that the statement answers; of several (a migration), those of the last."""
        ...

    def execute_many(self, sql: str, rows: Iterable[Params | tuple[Any, ...]]) -> None: ...

    def take_ids(self, table: str, count: int) -> Sequence[int]:
        """Numbers that nobody had before, rising."""
        ...

    def now(self) -> int:
        """Microseconds since the epoch by the clock that all of its users share."""
        ...

    def close(self) -> None: ...


class Bell(Protocol):
    """A hint that wakes whoever waits. Nothing depends on it."""

    def ring(self, who: str) -> None:
        """Wakes listeners of that kind ('pool', 'end'). Inside a transaction: once it is committed, never before."""
        ...

    def listen(self, who: str) -> Listener: ...


class Upkeep(Protocol):
    """How a database is looked after."""

    stops_writers: bool  # whether writers wait while it is vacuumed
    repair: str  # what to do about problems

    def problems(self) -> list[str]:
        """What is wrong with it, a line each; empty when all is well."""
        ...

    def size(self) -> int:
        """Bytes on the disk."""
        ...

    def vacuum(self) -> None: ...

    def backup(self, target: str) -> Iterator[tuple[int, int]]:
        """Copies one moment of it while it is in use; (pages left, pages in all). Refused where a server does that."""
        ...

    def set_durability(self, durability: str) -> None: ...

    def tidy(self) -> None:
        """What the database keeps for itself is not kept for ever. Inside a transaction, every now and then."""
        ...


class Database(Dialect, Bell, Protocol):
    """A queue's database as it is opened."""

    @property
    def upkeep(self) -> Upkeep: ...
