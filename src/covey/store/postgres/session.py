"""One connection to the server: found, known to be lost, its errors in one line; work that is done while it waits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg import waiting

from ...errors import Busy, SchemaError, StoreError, Undone
from ...system.waiting import readable
from .url import Target

T = TypeVar("T")

PASSING = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.UniqueViolation,  # somebody else took the key between our look and our insert
    pg.ForeignKeyViolation,  # somebody else removed the job
    pg.QueryCanceled,
)


class Session(psycopg.Connection[tuple[Any, ...]]):
    meanwhile: Callable[[], float | None] | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        return super().wait(
            _interposed(gen, self.fileno(), self.meanwhile) if self.meanwhile else gen, *args, **options
        )


def _interposed(steps: Generator[Any, Any, T], fd: int, work: Callable[[], float | None]) -> Generator[Any, Any, T]:
    """The same steps, with that work done once everything is sent: piece by piece, until the answer is there.

    After each piece it says for how long the next one can wait; None if there is none.
    """
    try:
        wanted = next(steps)
        while wanted != waiting.WAIT_R:
            wanted = steps.send((yield wanted))
        while (pause_s := work()) is not None and not readable([fd], pause_s):
            pass
        while True:
            wanted = steps.send((yield wanted))
    except StopIteration as end:
        found: T = end.value
        return found


def opened(target: Target, url: str, patience_s: float, greet: Callable[[Session], None]) -> Session:
    """A session that was greeted; StoreError in one line if none is to be had for so long."""
    deadline = time.monotonic() + patience_s
    pause_s = 0.02
    while True:
        with contextlib.ExitStack() as undone:
            try:
                session = Session.connect(
                    target.conninfo, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.ClientCursor
                )
                undone.callback(session.close)
                greet(session)
                undone.pop_all()
                return session
            except (psycopg.OperationalError, Undone) as error:
                if time.monotonic() + pause_s > deadline:
                    raise StoreError(f"cannot reach {url}: {first_line(error)}") from None
            except (psycopg.Error, UnicodeError) as error:
                raise StoreError(f"cannot use {url}: {first_line(error)}") from None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.5)


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
