"""Whose connection an enqueue may borrow: psycopg's, psycopg2's, and those under SQLAlchemy and Django.

Neither SQLAlchemy nor Django nor psycopg2 is imported: what is handed in is known by what it has.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from ...errors import InvalidInput, Refused, StoreError
from .bridge import Bridge
from .caller import Send

Tuples = list[tuple[Any, ...]]

KNOWN = "app.transaction(), a connection of psycopg, or a Session or connection of SQLAlchemy or Django on psycopg"
AUTOCOMMIT = (
    "the connection is in autocommit mode and no transaction is open; open one first "
    "(conn.transaction(), session.begin(), transaction.atomic())"
)
FAILED = "the transaction has failed already; roll it back first, then enqueue"


def lend(tx: object) -> Send:
    """How to send statements in the transaction that this object stands for; one line if it stands for none."""
    if isinstance(tx, Bridge):
        _check_psycopg(tx.connection)
        return tx.send
    raw = _under(tx)
    if isinstance(raw, psycopg.AsyncConnection) or is_async(tx):
        raise InvalidInput("tx= is an async connection; write `await task.using(tx=conn).aenqueue(…)`")
    if isinstance(raw, psycopg.Connection):
        _check_psycopg(raw)
        return lambda text, params: _send_psycopg(raw, text, params)
    if _is_psycopg2(raw):
        _check_psycopg2(raw)
        return lambda text, params: _send_psycopg2(raw, text, params)
    raise unknown(raw)


def is_async(tx: object) -> bool:
    """Whether only a coroutine can use it."""
    return isinstance(tx, psycopg.AsyncConnection) or hasattr(tx, "sync_session") or hasattr(tx, "sync_connection")


async def lend_async(tx: Any) -> psycopg.AsyncConnection[Any]:
    """The AsyncConnection behind it, with a transaction that its owner knows of."""
    if not is_async(tx):
        raise InvalidInput("tx= is not an async connection; call enqueue instead of aenqueue")
    if isinstance(tx, psycopg.AsyncConnection):
        return tx
    with _explained():
        if hasattr(tx, "sync_session"):
            tx = await tx.connection()
        if not tx.in_transaction():
            await tx.begin()
        raw = (await tx.get_raw_connection()).driver_connection
    if not isinstance(raw, psycopg.AsyncConnection):
        raise unknown(raw)
    return raw


def unknown(tx: object) -> InvalidInput:
    kind = type(tx)
    return InvalidInput(f"tx= is a {kind.__module__}.{kind.__qualname__}; it takes {KNOWN}")


# ── frameworks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _under(tx: Any) -> Any:
    """The driver's connection behind a framework's; its owner knows that a transaction is open on it."""
    if is_async(tx) or isinstance(tx, type):
        return tx
    with _explained():
        if hasattr(tx, "vendor") and hasattr(tx, "get_autocommit"):  # Django's
            if tx.vendor != "postgresql":
                raise InvalidInput(f"tx= leads to {tx.vendor}, not to the queue's PostgreSQL")
            tx.validate_thread_sharing()
            if tx.get_autocommit():
                raise Refused(AUTOCOMMIT)
            if tx.needs_rollback:
                raise Refused(FAILED)
            return tx.connection
        if hasattr(tx, "get_bind") and hasattr(tx, "flush"):  # SQLAlchemy's Session
            tx = tx.connection()
        if hasattr(tx, "exec_driver_sql"):  # SQLAlchemy's Connection
            if tx.dialect.name != "postgresql":
                raise InvalidInput(f"tx= leads to {tx.dialect.name}, not to the queue's PostgreSQL")
            # Its commit() sends nothing unless it has begun: a statement on the driver's connection would not tell it.
            if not tx.in_transaction():
                tx.begin()
            return tx.connection.driver_connection
    return tx


class _explained:
    """A framework's own error becomes one line."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, InvalidInput | Refused):
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            raise StoreError(f"tx= cannot be used: {said}") from error


# ── drivers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_psycopg(raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if raw.closed:
        raise StoreError("the connection in tx= is closed or broken; its transaction is gone")
    if raw.pgconn.pipeline_status != PipelineStatus.OFF:
        raise Refused("the connection in tx= is in pipeline mode; leave the pipeline first, then enqueue")
    _check_status(raw.info.transaction_status, raw.autocommit)


def _check_psycopg2(raw: Any) -> None:
    if raw.closed:
        raise StoreError("the connection in tx= is closed or broken; its transaction is gone")
    _check_status(raw.info.transaction_status, raw.autocommit)


def _check_status(status: int, autocommit: bool) -> None:
    if status == TransactionStatus.INERROR:
        raise Refused(FAILED)
    if status == TransactionStatus.IDLE and autocommit:
        raise Refused(AUTOCOMMIT)


def _is_psycopg2(raw: object) -> bool:
    module = sys.modules.get("psycopg2.extensions")
    return module is not None and isinstance(raw, module.connection)


def _send_psycopg(raw: psycopg.Connection[Any], text: str, params: Mapping[str, Any]) -> Tuples:
    # A cursor of our own kind: the caller's row and cursor factories are theirs.
    with psycopg.ClientCursor(raw, row_factory=tuple_row) as cursor:
        cursor.execute(text.encode(), params)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description is not None else []


def _send_psycopg2(raw: Any, text: str, params: Mapping[str, Any]) -> Tuples:
    with raw.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor) as cursor:
        cursor.execute(text, params)
        return cursor.fetchall() if cursor.description is not None else []
