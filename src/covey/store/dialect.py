"""The first seam: what differs between databases. One `Store` stands on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Params = Mapping[str, Any]


class Listener(Protocol):
    """Hears the bell. Polling is the truth; this only saves the wait."""

    def wait(self, timeout_s: float) -> bool: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Dialect(Protocol):
    name: str  # names the override file and the migrations
    url: str  # what a person would pass as --db
    side: str  # a directory of the queue's own on this host: live output, logs; "" where it has none

    def transaction(self) -> AbstractContextManager[None]:
        """The only way to write: alone (or with row locks), committed when the block ends, undone when it raises."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Several reads that see one moment."""
        ...

    def query(self, sql: str, params: Params) -> list[tuple[Any, ...]]: ...

    def execute_many(self, sql: str, rows: Iterable[Params | tuple[Any, ...]]) -> None: ...

    def script(self, sql: str) -> None:
        """Several statements inside the current transaction: migrations."""
        ...

    def take_ids(self, table: str, count: int) -> range: ...

    def ring(self, who: str, names: Sequence[str] = ()) -> None:
        """Wakes listeners of that kind ('pool', 'end'); after the commit, never before."""
        ...

    def listen(self, who: str) -> Listener: ...

    def close(self) -> None: ...
