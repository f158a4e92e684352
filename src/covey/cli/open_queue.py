"""Which queue a command works on, and opening it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import Refused

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..engine.engine import Engine
    from ..remote.remote import Remote
    from ..store.dialect import Listener
    from ..store.store import Store

_chosen: str | None = None
_token_file: str | None = None
_token: str | None = None
_open: list[Engine | Remote] = []
PATIENCE_S = 1.0  # a person who mistyped an address should not have to wait longer
LOOK_S = 0.25  # at a server, while somebody watches


def choose_database(db: str | None) -> None:
    """A --db before the verb holds unless there is one after it."""
    global _chosen
    _chosen = db


def named(db: str | None) -> str | None:
    """--db, wherever it stands."""
    return db or _chosen


def database(db: str | None) -> str:
    """--db, else COVEY_DB, else the nearest covey.toml, else one per user."""
    if given := named(db):
        return given
    from ..open import find_database

    return find_database()


def choose_token(path: str | None) -> None:
    """The file with the token for a server, instead of COVEY_TOKEN or COVEY_TOKEN_FILE."""
    global _token_file
    _token_file = path or _token_file


def offer_token(token: str | None) -> None:
    """An app's own, for the server that it names: used unless a file was chosen."""
    global _token
    _token = token


def chosen_token() -> str | None:
    """What is in that file, else the app's own; None if there is neither."""
    from ..open import read_token

    return _token if _token_file is None else read_token(_token_file)


def open_queue(db: str | None = None, *, create: bool = False) -> Engine | Remote:
    """The chosen queue, or one clear line if there is none. It is closed when the command ends."""
    from ..open import is_remote, open_remote

    url = database(db)
    if not is_remote(url):
        return open_database(url, create=create)
    remote = open_remote(url, token=chosen_token(), patience_s=PATIENCE_S)
    _open.append(remote)
    return remote


def open_database(db: str | None = None, *, create: bool = False) -> Engine:
    """The same for what needs the database itself; a server is refused."""
    from ..open import open_engine

    engine = open_engine(database(db), create=create)
    _open.append(engine)
    return engine


def listen_for_ends(queue: Client) -> Listener:
    """Hears when a job ends; at a server, or where it may not listen, it only keeps the pace."""
    store: Store | None = getattr(queue, "store", None)
    try:
        return Pace() if store is None else store.listen("end")
    except OSError:  # no bell can be hung
        return Pace()


class Pace:
    """A listener that hears nothing: it is time to look again."""

    def wait(self, timeout_s: float) -> bool:
        import time

        time.sleep(max(timeout_s, LOOK_S))
        return True

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


def close_queues() -> None:
    """No queue is open, however the command ended: the last one to leave folds the write-ahead log into the file."""
    while _open:
        _open.pop().close()


def refuse_nameless_inside_job(db: str | None) -> None:
    """Inside a job, a queue must be named: the one found by chance could be another than the job's own."""
    if os.environ.get("COVEY_RUN") and not (db or _chosen or os.environ.get("COVEY_DB")):
        raise Refused("inside a job the queue must be named; pass --db PATH or set COVEY_DB with -e when enqueuing")
