"""A server's errors as one line that says what, which, what now."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from ...errors import Busy, SchemaError, StoreError, Undone

PASSING = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.UniqueViolation,  # somebody else took the key between our look and our insert
    pg.ForeignKeyViolation,  # somebody else removed the job
    pg.QueryCanceled,
)


def explained(error: psycopg.Error, url: str, *, lost: bool, brief: bool) -> StoreError:
    """``lost``: the session is. ``brief``: who waits for a lock would rather hear of it soon."""
    said = f"{url}: {first_line(error)}"
    if brief and isinstance(error, pg.LockNotAvailable):
        return Busy(said)
    if lost or isinstance(error, PASSING):
        return Undone(said)
    if isinstance(error, pg.DiskFull):
        return StoreError(f"{said}; the server's disk is full: nothing was stored, free some space there and try again")
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return StoreError(f"{said}; the server is read-only: a standby, or in recovery")
    if isinstance(error, pg.InsufficientPrivilege):
        return StoreError(f"{said}; grant this user the rights, or use another one")
    if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn | pg.InvalidSchemaName):
        return SchemaError(f"{said}; these are not the tables of this Covey: upgrade it, or run `covey db migrate`")
    return StoreError(said)


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
