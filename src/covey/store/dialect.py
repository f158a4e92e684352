"""The first seam: what differs between databases. One `Store` stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Params = Mapping[str, Any]
STILL_S = 30.0  # a client may compute for long between two statements; a pool never does (duties.STILL_S)


class Listener(Protocol):
    """Hears the bell. Polling is the truth; this only saves the wait."""

    def wait(self, timeout_s: float) -> bool: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Dialect(Protocol):
    name: str  # names the override file and the migrations
    url: str  # what a person would pass as --db, without a password
    side: str  # a directory of the queue's own on this host: live output, logs; "" where it has none
    prefix: str  # before every table's name
    channel: str  # where listeners are woken, if the database does that
    row_locks: bool  # whether writers run beside each other; else each is alone with the database

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

    def express(self, sql: str, params: Params, hint: tuple[str, Params]) -> int | None:
        """A whole transaction in one message: a statement that answers an id (and takes a :token), and a hint."""
        ...

    def at_once(self, sql: str, params: Params, *, rings: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        """A whole unmarked transaction in one message: what this one statement answers. Then it rings for these."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Several reads that see one moment."""
        ...

    def within(self, limit_s: float) -> AbstractContextManager[None]:
        """What is asked in the block only reads, and raises TooLong when it has taken so many seconds in all."""
        ...

    def query(self, sql: str, params: Params) -> list[tuple[Any, ...]]: ...

    def queries(self, *asked: tuple[str, Params]) -> list[list[tuple[Any, ...]]]:
        """Several at once."""
        ...

    def also(self, sql: str, params: Params) -> None:
        """Inside a transaction: a statement whose answer nobody wants; it may travel with the next one."""
        ...

    def execute_many(self, sql: str, rows: Iterable[Params | tuple[Any, ...]]) -> None: ...

    def script(self, sql: str) -> None:
        """Several statements inside the current transaction: migrations."""
        ...

    def tables(self) -> set[str]:
        """What is there already."""
        ...

    def planned(self, statements: Mapping[str, str]) -> dict[str, str]:
        """Shorter ways to ask some of these statements, by name; where there are none, none."""
        ...

    def take_ids(self, table: str, count: int) -> Sequence[int]:
        """Numbers that nobody had before, rising."""
        ...

    def now(self) -> int:
        """Microseconds since the epoch by the clock that all of its users share."""
        ...

    def tidy(self) -> None:
        """Housekeeping of the dialect's own, inside a transaction, every now and then."""
        ...

    def set_durability(self, durability: str) -> None: ...

    def ring(self, who: str) -> None:
        """Wakes listeners of that kind ('pool', 'end'). Inside a transaction: once it is committed, never before."""
        ...

    def after_commit(self, sql: str, params: Params) -> None:
        """Inside a transaction: a hint to be sent once it is committed; nobody waits for it or depends on it."""
        ...

    def listen(self, who: str) -> Listener: ...

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        """From now on ``work`` is done in the middle of anything, by the same thread, while a server works.

        Again and again until the answer is there: it says after how many seconds, None if it is done. It must ask
        nothing of the database. False if there is no server that one could wait for.
        """
        ...

    def close(self) -> None: ...
