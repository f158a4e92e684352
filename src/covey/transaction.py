"""Many enqueues, one write: all of them are stored when the block ends, or none."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from .errors import InvalidInput, Refused
from .job import Call, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .connection import Connection
    from .core.model import Spec
    from .core.ports import Client
    from .engine.engine import Engine

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

# Per thread and per asyncio task; a context copied out of a block may still name a transaction that has ended.
_open: ContextVar[tuple[Transaction, ...]] = ContextVar("covey_transactions", default=())


class Callable(Protocol[P, R_co]):
    """A task, or a task with other options."""

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]: ...


class Enqueue(Protocol[R_co]):
    def __call__(self, tx: object, /) -> Job[R_co]: ...


class Transaction:
    """Made by ``app.transaction()``. Reads inside the block do not see what it has collected."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._collected: list[tuple[Spec, Job[Any]]] = []
        self._lock = threading.Lock()  # `aenqueue` adds from other threads
        self._pid = os.getpid()
        self._state = "new"
        self._token: Token[tuple[Transaction, ...]] | None = None

    def enqueue(self, task: Callable[P, R_co], /, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """The job is stored when the block ends; until then it has no id."""
        call = task.call(*args, **kwargs)
        return submit(call.source.connection, (call.source.spec(call.args),), self)[0]

    def add(self, spec: Spec) -> Job[Any]:
        with self._lock:
            if not self.is_open():
                raise Refused("this transaction has ended; open a new one with `with app.transaction() as tx`")
            job: Job[Any] = Job(
                self.connection,
                None,
                key=spec.key,
                trouble="this job has no id yet; it is stored when its transaction ends",
            )
            self._collected.append((spec, job))
        return job

    def is_open(self) -> bool:
        # A forked child is not in its parent's transaction: both would write what was collected.
        return self._state == "open" and self._pid == os.getpid()

    def __enter__(self) -> Transaction:
        if current(self.connection) is not None:
            raise Refused("a transaction of this app is open already; use that one, they do not nest")
        if self._state != "new":
            raise Refused("this transaction has ended; open a new one with `with app.transaction() as tx`")
        self._state = "open"
        self._token = _open.set((*_open.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._token is not None:
            _open.reset(self._token)
            self._token = None
        with self._lock:
            mine, self._state = self.is_open(), "ended"
        if kind is None and not mine:
            self._abandon("its transaction was opened by another process")
            raise Refused(f"this transaction was opened by pid {self._pid}; a forked child must open its own")
        if kind is not None:
            self._abandon("an exception ended its transaction")
            return
        try:
            self._write()
        except BaseException:
            self._abandon("its transaction could not be written")
            raise

    def _write(self) -> None:
        if not self._collected:
            return
        enqueued = self.connection.client.enqueue([spec for spec, _ in self._collected])
        for (spec, job), done in zip(self._collected, enqueued, strict=True):
            job.stored(done, spec)

    def _abandon(self, why: str) -> None:
        for _, job in self._collected:
            job.abandoned(f"this job was never stored: {why}")

    def __repr__(self) -> str:
        return f"<Transaction {self._state}: {len(self._collected)} jobs>"


def current(connection: Connection) -> Transaction | None:
    """The transaction of that connection that this thread or asyncio task is in."""
    for transaction in _open.get():
        if transaction.connection is connection and transaction.is_open():
            return transaction
    return None


def submit(connection: Connection, specs: Sequence[Spec], tx: object = None) -> list[Job[Any]]:
    """The jobs are stored, all or none; inside a transaction (Covey's or the caller's) they will be when it ends."""
    if tx is None and _open.get():
        tx = current(connection)
    if isinstance(tx, Transaction):
        if tx.connection is not connection:
            raise InvalidInput("the transaction belongs to another app than the task; open one of the task's own app")
        return [tx.add(spec) for spec in specs]
    client = connection.client
    enqueued = client.enqueue(specs) if tx is None else _lender(client).enqueue_in(tx, specs)
    return [
        Job(connection, done.id, key=None if done.existing else spec.key, existing=done.existing)
        for spec, done in zip(specs, enqueued, strict=True)
    ]


def _lender(client: Client) -> Engine:
    """Whoever can write into a caller's transaction."""
    if not hasattr(client, "enqueue_in"):
        raise InvalidInput("a connection as tx= needs a queue on PostgreSQL, opened directly and not through a server")
    return cast("Engine", client)


async def asubmit(connection: Connection, tx: object, enqueue: Enqueue[R_co]) -> Job[R_co]:
    """What ``enqueue`` does in the transaction of the caller's async connection."""
    import asyncio

    await asyncio.to_thread(lambda: _lender(connection.client).check_lendable())
    from .store.postgres.bridge import across  # drivers, which others need not have
    from .store.postgres.lenders import lend_async

    return await across(await lend_async(tx), enqueue)
