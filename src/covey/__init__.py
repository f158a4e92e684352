"""Covey: a durable job queue. ``from covey import Covey`` and read docs/python.md."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers know the name; importing it from typing would cost more than all the rest here

if TYPE_CHECKING:
    from typing import Any

    from .app import Covey as Covey
    from .core.model import Child as Child
    from .errors import Abort as Abort
    from .errors import Busy as Busy
    from .errors import ContainerError as ContainerError
    from .errors import CoveyError as CoveyError
    from .errors import Duplicate as Duplicate
    from .errors import Forbidden as Forbidden
    from .errors import Gone as Gone
    from .errors import InvalidInput as InvalidInput
    from .errors import JobFailed as JobFailed
    from .errors import LeaseLost as LeaseLost
    from .errors import NoQueue as NoQueue
    from .errors import NotFound as NotFound
    from .errors import Refused as Refused
    from .errors import Retry as Retry
    from .errors import SchemaError as SchemaError
    from .errors import Snooze as Snooze
    from .errors import SpawnRefused as SpawnRefused
    from .errors import StillStopping as StillStopping
    from .errors import Stopped as Stopped
    from .errors import StoreError as StoreError
    from .errors import TooLarge as TooLarge
    from .errors import TooLong as TooLong
    from .errors import Unauthorized as Unauthorized
    from .errors import Undone as Undone
    from .errors import Unknown as Unknown
    from .errors import Unreachable as Unreachable
    from .errors import WaitTimeout as WaitTimeout
    from .job import Call as Call
    from .job import Job as Job
    from .task import Task as Task
    from .transaction import Transaction as Transaction
    from .worker.children import Children as Children
    from .worker.context import Context as Context
    from .worker.spawns import Spawned as Spawned

_ERRORS = (
    "Abort Busy ContainerError CoveyError Duplicate Forbidden Gone InvalidInput JobFailed LeaseLost NoQueue "
    "NotFound Refused Retry SchemaError Snooze SpawnRefused StillStopping Stopped StoreError TooLarge TooLong "
    "Unauthorized Undone Unknown Unreachable WaitTimeout"
)

# Loaded when first asked for: the command line imports this package too and must start at once.
_ROOMS = {
    "Call": ".job",
    "Child": ".core.model",
    "Children": ".worker.children",
    "Context": ".worker.context",
    "Covey": ".app",
    "Job": ".job",
    "Spawned": ".worker.spawns",
    "Task": ".task",
    "Transaction": ".transaction",
} | dict.fromkeys(_ERRORS.split(), ".errors")


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'covey' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_ROOMS[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
