"""The queue's tables over a connection that is somebody else's, inside a transaction that they commit or not.

Nothing is set here, so nothing is left set: what lasts until the caller's commit is the queue's shared lock, a NOTIFY
and the rows. All that an enqueue does stands under a savepoint; refused or failed, it is as if it had not been asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...errors import Refused, SchemaError, StoreError, Undone
from ..dialect import Params
from .binding import Insert, insert_of, placeholders

if TYPE_CHECKING:
    from .database import Postgres

# Sends a text with %(name)s in it, and gives the rows that its last statement answers. Bound by the caller's driver.
Send = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]

BATCH = 500  # rows of one statement
SAVEPOINT = "covey_enqueue"
PASSING = ("40001", "40P01", "55P03", "57014")  # serialization, deadlock, lock time-out, cancelled
MISSING = ("42P01", "42703", "3F000")


class Taken(Undone):
    """A key was taken by somebody else between the look and the insert."""


class Borrowed:
    """What an enqueue needs of a Dialect, and no more."""

    name = "postgres"
    row_locks = True

    def __init__(self, home: Postgres, send: Send) -> None:
        self.url, self.prefix, self.channel = home.url, home.prefix, home.channel
        self._lock = home.advisory_lock
        self._send = send

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """What was done in the block is part of the caller's transaction; if it raises, nothing was done."""
        self._run(f"savepoint {SAVEPOINT}", {})
        try:
            self._run(f"select pg_advisory_xact_lock_shared({self._lock})", {})
            yield
            self._run(f"release savepoint {SAVEPOINT}", {})
        except BaseException:
            self._return()
            raise

    def _return(self) -> None:
        """To the savepoint. Twice if need be: a cancel meant for the statement before may arrive late."""
        for _ in range(2):
            with contextlib.suppress(StoreError):  # at last: the connection is lost, and the transaction with it
                self._run(f"rollback to savepoint {SAVEPOINT}; release savepoint {SAVEPOINT}", {})
                return

    def query(self, sql: str, params: Params) -> list[tuple[Any, ...]]:
        return self._run(placeholders(sql), params)

    def execute_many(self, sql: str, rows: Iterable[Params | tuple[Any, ...]]) -> None:
        insert, rows = insert_of(sql), iter(rows)
        assert insert is not None, "an enqueue only inserts"
        while batch := list(islice(rows, BATCH)):
            self._run(*_rows_of(insert, batch))

    def take_ids(self, table: str, count: int) -> Sequence[int]:
        sequence = f"'{self.prefix}{table}_id_seq'"
        return [row[0] for row in self.query(f"select nextval({sequence}) from generate_series(1, {count})", {})]

    def ring(self, who: str) -> None:
        """Heard when the caller commits. Without regard to a backlog: by then it may be gone."""
        self.query("select pg_notify(:channel, :who)", {"channel": self.channel, "who": who})

    def _run(self, text: str, params: Params) -> list[tuple[Any, ...]]:
        try:
            return self._send(text, params)
        except StoreError:
            raise
        except Exception as error:  # a driver's own, of which there are several
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> StoreError | Refused:
        """The driver's error as one line that says what, which, what now."""
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        if state == "23505":
            return Taken(f"{said}; somebody else took the key")
        if state in PASSING:
            return Undone(f"{said}; nothing was enqueued, roll back and begin your transaction again")
        if state in MISSING:
            return SchemaError(f"{said}; the connection leads elsewhere than {self.url}, or `covey db migrate` is due")
        if state == "25P02":
            return Refused("the transaction has failed already; roll it back first, then enqueue")
        if state == "25006":
            return StoreError(f"{said}; the transaction or the server is read-only, enqueue in another one")
        if state == "42501":
            return StoreError(f"{said}; grant the connection's user the rights on {self.prefix.rstrip('.')}")
        return StoreError(f"nothing was enqueued: {said}")


def _rows_of(insert: Insert, rows: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """One INSERT of all the rows, and its parameters: the first row's are p0, p1, …"""
    pick, width = insert.pick(rows[0]), len(insert.names)
    values = [value for row in rows for value in pick(row)]
    lines = (", ".join(f"%(p{n})s" for n in range(at, at + width)) for at in range(0, len(values), width))
    listed = ", ".join(f"({line})" for line in lines)
    text = f"insert into {insert.table} ({insert.columns}) values {listed} {insert.tail}"
    return text, {f"p{n}": value for n, value in enumerate(values)}
