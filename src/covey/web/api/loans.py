"""One job at a time, for workers in any language."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ... import __version__
from ...core import bodies, codec
from ...core.check import check_spec
from ...core.model import Child, Output, Spawn
from ...core.objects import FIELDS, spec_of
from ...core.turn import PoolInfo
from ...engine.engine import Engine
from ...engine.loans import Loan
from ...errors import CoveyError, InvalidInput, LeaseLost, NotFound
from ...worker.output import Capture

if TYPE_CHECKING:
    from ..auth import Guest
    from ..engine_threads import Desk
    from ..notifier import Hub

AGAIN_S = 1.0  # between two looks while nothing rings
NAMED_S = 5.0  # for so long what was lent to somebody who hung up waits for him, if he gave it a name
MOST_NAMED = 1000  # names of claims that are remembered


class Lending:
    """Used from one event loop. Who hangs up while something is lent to him leaves nothing lent."""

    def __init__(self, desk: Desk, hub: Hub) -> None:
        self._desk, self._hub = desk, hub
        self._named: dict[str, Lend] = {}  # what was lent under a name of the asker's, the oldest first
        self._leaving: set[asyncio.Task[None]] = set()

    async def claim(
        self, ask: bodies.ClaimAsk, wait_s: float, admit: Callable[[], Awaitable[Guest]]
    ) -> bodies.Lent | None:
        """A job, as soon as there is one; None if there was none in time."""
        deadline = time.monotonic() + wait_s
        while True:
            seen = self._hub.seen
            guest = await admit()
            name = None if ask.request is None else f"{guest.token}:{ask.request}"
            if (lent := await self._again(name, ask) or await self._lend(name, ask)) is not None:
                return lent
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._hub.dismissed:
                return None
            await self._hub.wait(None, ask.queues, ask.kinds, min(left_s, AGAIN_S), seen)

    async def _again(self, name: str | None, ask: bodies.ClaimAsk) -> bodies.Lent | None:
        """What was lent under that name and is so still: its answer was lost."""
        if name is None or (before := self._named.pop(name, None)) is None or before.failed():
            return None
        lend = self._named[name] = Lend(before.lending, before.loan)  # who hung up does not hand it back any more
        if (loan := lend.loan) is not None:
            lend.lending = asyncio.ensure_future(self._desk.ask(lambda engine: _still(engine, loan, ask)))
        return await self._answer(name, lend)

    async def _lend(self, name: str | None, ask: bodies.ClaimAsk) -> bodies.Lent | None:
        lend = Lend(asyncio.ensure_future(self._desk.ask(lambda engine: _lend(engine, ask))))
        if name is not None:
            if len(self._named) >= MOST_NAMED:
                del self._named[next(iter(self._named))]
            self._named[name] = lend
        return await self._answer(name, lend)

    async def _answer(self, name: str | None, lend: Lend) -> bodies.Lent | None:
        """What is being lent; under its name it is remembered, a failure is not."""
        lending = lend.lending
        assert lending is not None
        try:
            lent = await asyncio.shield(lending)
        except asyncio.CancelledError:  # he hung up; the thread lends all the same
            leaving = asyncio.ensure_future(self._hand_back(name, lend, lending))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            raise
        except Exception:
            self._forget(name, lend)
            raise
        # Who asked under the same name meanwhile and hung up must not hand back what this one is told of.
        if name is not None and (known := self._named.get(name)) is not None and known.lending is lending:
            if lent is None:
                del self._named[name]
            else:  # by its numbers alone: a job can be large
                known.lending, known.loan = None, (lent.job.id, lent.pool, lent.fence, lent.attempt, lent.timeout_s)
        return lent

    def _forget(self, name: str | None, lend: Lend) -> None:
        """The next who asks under that name does not hear of this failure; what was lent before it stays his."""
        if name is None or self._named.get(name) is not lend:
            return
        if lend.loan is None:
            del self._named[name]
        else:
            lend.lending = None

    async def _hand_back(self, name: str | None, lend: Lend, lending: asyncio.Future[bodies.Lent | None]) -> None:
        """What was lent in the moment in which its asker hung up is to be had again; with a name he may ask for it."""
        try:
            lent = await lending
        except Exception:  # nobody is there to be told
            self._forget(name, lend)
            return
        if name is not None:
            if lent is not None:
                await asyncio.sleep(NAMED_S)
            if self._named.get(name) is not lend or lend.lending is not lending:
                return  # he did
            del self._named[name]
        if lent is not None:
            with contextlib.suppress(CoveyError):  # the lease ends it
                await self._desk.ask(lambda engine: engine.release(lent.job.id, lent.pool, lent.fence))


class Lend(Struct, eq=False):
    """One act of lending: under way, or (job, pool, fence, attempt, time-out) of what was lent; both while that is told
    once more.
    """

    lending: asyncio.Future[bodies.Lent | None] | None
    loan: tuple[int, int, int, int, float | None] | None = None

    def failed(self) -> bool:
        """Nothing came of it."""
        if self.loan is not None or self.lending is None or not self.lending.done():
            return False
        return self.lending.cancelled() or self.lending.exception() is not None


def _lend(engine: Engine, ask: bodies.ClaimAsk) -> bodies.Lent | None:
    """A look first: a pool that is made and forgotten again costs two commits."""
    if not any(
        kind in ask.kinds and (ask.queues is None or queue in ask.queues)
        for queue, kind, _ in engine.pending_work().ready
    ):
        return None
    info = PoolInfo(
        name=ask.name,
        host="http",
        boot="",
        pid=0,
        ticks=0,
        queues=ask.queues,
        kinds=ask.kinds,
        count=1,
        version=__version__,
        lease_s=ask.lease_s,
    )
    if (lent := engine.lend(info)) is None:
        return None
    pool, claim = lent
    job = engine.job(claim.id)
    return bodies.Lent(
        pool, claim.fence, ask.lease_s, claim.attempt, job, _children(claim.children), timeout_s=claim.timeout_s
    )


def _still(engine: Engine, loan: Any, ask: bodies.ClaimAsk) -> bodies.Lent | None:
    """The same once more, and its lease begins anew; None if it is over."""
    id, pool, fence, attempt, timeout_s = loan
    try:
        engine.renew(id, pool, fence)
        job = engine.job(id)
    except (LeaseLost, NotFound):
        return None
    children = _children(engine.store.outcomes(id)) if job.phase == "join" else None
    return bodies.Lent(pool, fence, ask.lease_s, attempt, job, children, timeout_s=timeout_s)


def _children(text: str | None) -> list[Child] | None:
    return None if text is None else msgspec.json.decode(text, type=list[Child])


def heartbeat(engine: Engine, job: int, ask: bodies.Holding) -> bodies.Still:
    reason = engine.renew(job, ask.pool, ask.fence)
    return bodies.Still(reason is not None, reason)


def release(engine: Engine, job: int, ask: bodies.Holding) -> bodies.Released:
    engine.release(job, ask.pool, ask.fence)
    engine.hide_output(job, ask.fence)
    return bodies.Released(job)


def end_overdue(engine: Engine) -> list[Loan]:
    """Runs that are long out of time, and that nobody has stopped, have failed; with what they were heard to write."""
    found = engine.overdue_loans()
    for loan in found:
        engine.time_out(loan, _written(*engine.shown_output(loan.job, loan.fence)))
        engine.hide_output(loan.job, loan.fence)
    return found


def spawn(engine: Engine, job: int, ask: bodies.SpawnAsk, within: tuple[str, ...] | None = None) -> bodies.Spawned:
    settings = engine.settings()
    spawned = []
    for place, fields in enumerate(ask.jobs):
        try:
            if unknown := [name for name in fields if name not in FIELDS]:
                raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(FIELDS)}")
            spec = check_spec(spec_of(fields, settings=settings, defaults={}))
        except InvalidInput as error:
            raise InvalidInput(f"jobs[{place}]: {error}") from None
        spawned.append(Spawn(ask.relation, spec, fields.get("queue"), fields.get("priority"), within=within))
    return bodies.Spawned(engine.stage(job, ask.pool, ask.fence, spawned, ask.after))


def complete(engine: Engine, job: int, ask: bodies.Complete) -> bodies.Outcome:
    result = None if ask.result is None else codec.encode(ask.result, what="result")
    return _settle(engine, job, ask, "success", result=result)


def fail(engine: Engine, job: int, ask: bodies.Fail) -> bodies.Outcome:
    more = {"error": ask.error, "detail": ask.detail, "after_s": ask.retry_after_s}
    return _settle(engine, job, ask, "abort" if ask.abort else "failure", **more)


def _settle(
    engine: Engine, job: int, ask: bodies.Complete | bodies.Fail, outcome: Any, **fields: Any
) -> bodies.Outcome:
    output = _output(engine, job, ask)
    engine.settle(job, ask.pool, ask.fence, outcome, exit_code=ask.exit_code, output=output, **fields)
    engine.hide_output(job, ask.fence)
    try:
        return bodies.Outcome(job, engine.job(job).state)
    except NotFound:
        return bodies.Outcome(job, "removed")


def _output(engine: Engine, job: int, ask: bodies.Complete | bodies.Fail) -> Output | None:
    """What was sent while the job ran, and what came with its end."""
    shown = engine.shown_output(job, ask.fence)
    return _written(shown[0] + ask.stdout.encode("utf-8", "replace"), shown[1] + ask.stderr.encode("utf-8", "replace"))


def _written(*streams: bytes) -> Output | None:
    kept = []
    for data in streams:
        capture = Capture()
        capture.write(data)
        kept.append(capture.finish())
    (stdout, out_dropped), (stderr, err_dropped) = kept
    return Output(stdout, stderr, out_dropped, err_dropped) if stdout or stderr else None


def write_output(engine: Engine, job: int, ask: bodies.OutputAsk) -> bodies.Nothing:
    info = None if ask.info is msgspec.UNSET else ask.info
    engine.show_output(ask.pool, job, ask.fence, ask.stdout, ask.stderr, info=info)
    return bodies.Nothing()
