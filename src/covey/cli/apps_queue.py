"""Which queue a pool with an app works on: --db, else the one that the app names, else as always."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CoveyError, InvalidInput
from .open_queue import database, named, offer_token

if TYPE_CHECKING:
    from ..worker.messages import Preloaded


def queue_of(app: str, told: Preloaded, db: str | None) -> str:
    """The URL; InvalidInput if --db and the app name different queues."""
    if told.queue is None:
        return database(db)
    from ..open import is_memory, place, shown

    if is_memory(told.queue):
        raise InvalidInput(
            f"the app {app!r} names a queue in memory, which no pool can reach; give it a file, or none: Covey()"
        )
    given = named(db)
    if given is None or place(given) == place(told.queue):
        offer_token(told.token)
        return given or told.queue
    if not _is_same(given, told):
        raise InvalidInput(
            f"--db {shown(given)}, but the app {app!r} names {shown(told.queue)}; leave out --db, or the app's: Covey()"
        )
    return given


def asked(app: str, db: str | None) -> str:
    """The same for who has no zygote: one is started for the question. As always if the app cannot be imported here."""
    from ..connection import absolute
    from ..pool.main import signal_pipe
    from ..pool.scout import Scout

    given = named(db)
    with signal_pipe() as signals, Scout(app, given and absolute(given), signals) as scout:
        try:
            told = scout.learn()
        except CoveyError:
            return database(db)
    return queue_of(app, scout.told, db) if told else database(db)


def _is_same(given: str, told: Preloaded) -> bool:
    """Whether both are the same queue all the same: a file, and the server that has it open."""
    from ..open import open_client
    from .open_queue import chosen_token

    ids = []
    for url, token in ((given, chosen_token()), (told.queue, told.token)):
        try:
            client = open_client(url, token=token, create=False)
        except (CoveyError, OSError):
            return False
        try:
            ids.append(client.database_id)
        except (CoveyError, OSError):
            return False
        finally:
            client.close()
    return ids[0] == ids[1]
