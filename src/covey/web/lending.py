"""One job at a time, for workers in any language."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .. import __version__
from ..core import bodies, codec
from ..core.check import check_spec
from ..core.model import Child, Output, PoolInfo, Spawn
from ..core.objects import FIELDS, spec_of
from ..engine.engine import Engine
from ..errors import InvalidInput, NotFound
from ..worker.output import Capture

if TYPE_CHECKING:
    from .desk import Desk
    from .hub import Hub

AGAIN_S = 1.0  # between two looks while nothing rings


class Lending:
    def __init__(self, desk: Desk, hub: Hub) -> None:
        self._desk, self._hub = desk, hub

    async def claim(
        self, ask: bodies.ClaimAsk, wait_s: float, admit: Callable[[], Awaitable[Any]]
    ) -> bodies.Lent | None:
        """A job, as soon as there is one; None if there was none in time."""
        deadline = time.monotonic() + wait_s
        while True:
            seen = self._hub.seen
            await admit()
            if (lent := await self._desk.ask(lambda engine: _lend(engine, ask))) is not None:
                return lent
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._hub.dismissed:
                return None
            await self._hub.wait(None, ask.queues, ask.kinds, min(left_s, AGAIN_S), seen)


def _lend(engine: Engine, ask: bodies.ClaimAsk) -> bodies.Lent | None:
    """A look first: a pool that is made and forgotten again costs two commits."""
    if not any(
        kind in ask.kinds and (ask.queues is None or queue in ask.queues) for queue, kind, _ in engine.stirrings().ready
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
    children = None if claim.children is None else msgspec.json.decode(claim.children, type=list[Child])
    return bodies.Lent(pool, claim.fence, ask.lease_s, claim.attempt, engine.job(claim.id), children)


def heartbeat(engine: Engine, job: int, ask: bodies.Holding) -> bodies.Still:
    return bodies.Still(engine.renew(job, ask.pool, ask.fence))


def spawn(engine: Engine, job: int, ask: bodies.SpawnAsk) -> bodies.Spawned:
    settings = engine.settings()
    spawned = []
    for place, fields in enumerate(ask.jobs):
        try:
            if unknown := [name for name in fields if name not in FIELDS]:
                raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(FIELDS)}")
            spec = check_spec(spec_of(fields, settings=settings, defaults={}))
        except InvalidInput as error:
            raise InvalidInput(f"jobs[{place}]: {error}") from None
        spawned.append(Spawn(ask.relation, spec, fields.get("queue"), fields.get("priority")))
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
    kept = []
    for shown, last in zip(engine.shown_output(job, ask.fence), (ask.stdout, ask.stderr), strict=True):
        capture = Capture()
        capture.write(shown)
        capture.write(last.encode("utf-8", "replace"))
        kept.append(capture.finish())
    (stdout, out_dropped), (stderr, err_dropped) = kept
    return Output(stdout, stderr, out_dropped, err_dropped) if stdout or stderr else None


def write_output(engine: Engine, job: int, ask: bodies.OutputAsk) -> bodies.Nothing:
    info = None if ask.info is msgspec.UNSET else ask.info
    engine.show_output(ask.pool, job, ask.fence, ask.stdout, ask.stderr, info=info)
    return bodies.Nothing()
