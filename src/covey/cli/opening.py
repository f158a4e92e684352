"""Which queue a command works on, and opening it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import Refused

if TYPE_CHECKING:
    from ..engine.engine import Engine

_chosen: str | None = None
_open: list[Engine] = []


def choose_database(db: str | None) -> None:
    """A --db before the verb holds unless there is one after it."""
    global _chosen
    _chosen = db


def database(db: str | None) -> str:
    """--db, else COVEY_DB, else the nearest covey.toml, else one per user."""
    if named := db or _chosen:
        return named
    from ..compose import find_database

    return find_database()


def open_queue(db: str | None = None, *, create: bool = False) -> Engine:
    """The engine of the chosen queue, or one clear line if there is none. It is closed when the command ends."""
    from ..compose import open_engine

    engine = open_engine(database(db), create=create)
    _open.append(engine)
    return engine


def close_queues() -> None:
    """No queue is open, however the command ended: the last one to leave folds the write-ahead log into the file."""
    while _open:
        _open.pop().close()


def refuse_nameless_inside_job(db: str | None) -> None:
    """Inside a job, a queue must be named: the one found by chance could be another than the job's own."""
    if os.environ.get("COVEY_RUN") and not (db or _chosen or os.environ.get("COVEY_DB")):
        raise Refused("inside a job the queue must be named; pass --db PATH or set COVEY_DB with -e when enqueuing")
