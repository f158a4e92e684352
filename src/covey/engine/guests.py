"""An enqueue as a guest in somebody else's transaction: no commit, no job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ..core.model import Enqueued, Spec
from ..env import failpoint
from ..errors import Refused
from ..store.dialect import Dialect
from ..store.postgres.caller import Borrowed, Taken
from ..store.postgres.lenders import lend
from ..store.store import Store
from . import arrivals, sealing
from .spawns import AddQueues, Queues

if TYPE_CHECKING:
    from ..store.postgres.database import Postgres


class Guest:
    def __init__(self, home: Store, database_id: str, tx: object) -> None:
        """One line if ``tx`` is nothing that could be borrowed."""
        self._home = home
        self._database_id = database_id
        self._store = Store(cast(Dialect, Borrowed(cast("Postgres", home.dialect), lend(tx))))

    def enqueue(self, specs: Sequence[Spec], *, now: int, add_queues: AddQueues) -> list[Enqueued]:
        """All of them are part of the caller's transaction, or none is, and then it can still be used."""
        try:
            return self._enqueue(specs, now, add_queues, self._store)
        except Taken:
            # By somebody who has committed since. In a repeatable read the caller cannot see by whom; we can.
            return self._enqueue(specs, now, add_queues, self._store, self._home)

    def _enqueue(self, specs: Sequence[Spec], now: int, add_queues: AddQueues, *lookers: Store) -> list[Enqueued]:
        store = self._store
        with store.dialect.transaction():
            if store.value("meta") != self._database_id:
                raise Refused(f"the connection in tx= leads to another queue than {store.dialect.url}")
            # The transaction holds the queue's lock now, so the rules stay as they are until it ends. They are read
            # through our own connection, because the caller may see an earlier moment.
            sealing.refuse(self._home.ask("meta")[0][2])
            answers = arrivals.admit(specs, *lookers)
            fresh = arrivals.fresh(specs, answers)
            # Not in this transaction: if it takes its time, a new name would hold up everybody else who uses it.
            add_queues({spec.queue for spec in fresh}, now)
            enqueued = arrivals.named(answers, arrivals.insert(fresh, now, store, Queues(self._home)))
            if fresh:
                store.ring("pool")
            failpoint("guest.before_release")
        return enqueued
