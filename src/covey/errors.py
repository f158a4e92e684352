"""Everything Covey raises.

CoveyError
├── InvalidInput        what was asked makes no sense           exit 2
├── Refused             it makes sense, but not now             exit 1
│   ├── NotFound        no such job, queue, pool
│   ├── Duplicate       the key is taken (``.job_id`` says by whom)
│   ├── StillStopping   cancelled, but its processes are not gone yet
│   ├── SpawnRefused    a run asked for a job that it may not spawn; left uncaught, its own job is dead
│   └── TooLarge        a payload over the limit
├── StoreError          the database cannot be used             exit 1
│   ├── Busy            somebody else holds the write lock (``.pid``)
│   ├── Undone          the database gave the transaction up, nothing was written; the same again may succeed
│   ├── Unknown         whether the last transaction was committed cannot be told
│   ├── NoQueue         there is none in that place yet
│   ├── Gone            its file was removed or replaced under us; only a restart helps
│   ├── Unreachable     the server does not answer; whether it heard is not known
│   ├── TooLong         a question took longer than it may; nothing else waited for it
│   └── SchemaError     the tables are newer or older than this Covey
├── ContainerError      the container engine refused, or did not answer
├── LeaseLost           a stale pool spoke: nothing was written
├── Unauthorized        the server wants a token, or does not know this one
├── Forbidden           the token does not allow that
├── JobFailed           ``job.result()`` of a job that did not complete
└── WaitTimeout         ``job.wait()`` ran out of time

Raised by tasks, to steer their own job:

Retry(after=…)   fail this attempt, try again later
Snooze(…)        not now; costs no attempt
Abort(reason)    never again: the job is dead
Stopped          raised *inside* a task that is being stopped (a BaseException: ``except Exception`` lets it pass)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta


class CoveyError(Exception):
    """Base of everything that Covey raises on purpose."""

    exit_code = 1


class InvalidInput(CoveyError, ValueError):
    exit_code = 2


class Refused(CoveyError):
    pass


class NotFound(Refused, LookupError):
    pass


class Duplicate(Refused):
    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class StillStopping(Refused):
    pass


class SpawnRefused(Refused):
    pass


class TooLarge(Refused, ValueError):
    exit_code = 2


class StoreError(CoveyError):
    pass


class Busy(StoreError):
    def __init__(self, message: str, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class Undone(StoreError):
    pass


class Unknown(StoreError):
    pass


class NoQueue(StoreError):
    pass


class Gone(StoreError):
    pass


class Unreachable(StoreError):
    pass


class TooLong(StoreError):
    pass


class SchemaError(StoreError):
    pass


class ContainerError(CoveyError):
    """The container engine refused, or did not answer."""


class LeaseLost(CoveyError):
    pass


class Unauthorized(CoveyError):
    pass


class Forbidden(CoveyError):
    pass


class JobFailed(CoveyError):
    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class WaitTimeout(CoveyError, TimeoutError):
    exit_code = 124


class Retry(Exception):
    """Fail this attempt and try again, ``after`` seconds from now instead of the usual back-off."""

    def __init__(self, reason: str = "retry asked", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Snooze(Exception):
    """Come back in ``seconds``; the attempt does not count."""

    def __init__(self, seconds: float | timedelta) -> None:
        super().__init__(f"snoozed for {seconds}")
        self.seconds = seconds


class Abort(Exception):
    """Bury the job at once, whatever attempts are left."""


class Stopped(BaseException):
    """The job was cancelled, timed out, or the pool is shutting down."""
