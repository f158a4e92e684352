"""One job at a time, for workers in any language: each loan is a pool of its own with one job and one lease."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .. import __version__
from ..core import wire
from ..core.model import PoolInfo, Turn, Want
from ..engine.engine import Engine
from ..errors import InvalidInput

if TYPE_CHECKING:
    from .desk import Desk
    from .hub import Hub

LEASE_S = (3.0, 86_400.0)
AGAIN_S = 1.0  # between two looks while nothing rings


class Lending:
    def __init__(self, desk: Desk, hub: Hub) -> None:
        self._desk, self._hub = desk, hub

    async def claim(self, ask: wire.ClaimAsk, wait_s: float) -> wire.Lent | None:
        """A job, as soon as there is one; None if there was none in time."""
        if not LEASE_S[0] <= ask.lease_s <= LEASE_S[1]:
            raise InvalidInput(f"lease_s {ask.lease_s!r}: from {LEASE_S[0]:g} to {LEASE_S[1]:g} seconds")
        if not ask.kinds:
            raise InvalidInput("kinds: name at least one of command, sync, async")
        if not (1 <= len(ask.name) <= 200 and ask.name.isprintable()):
            raise InvalidInput("name: 1 to 200 printable characters")
        deadline = time.monotonic() + wait_s
        while True:
            seen = self._hub.seen
            if (lent := await self._desk.ask(lambda engine: _lend(engine, ask))) is not None:
                return lent
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._hub.dismissed:
                return None
            await self._hub.wait(0, ask.queues, ask.kinds, min(left_s, AGAIN_S), seen)


def _lend(engine: Engine, ask: wire.ClaimAsk) -> wire.Lent | None:
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
    pool = engine.register(info).pool
    want = Want(queues=ask.queues, places=dict.fromkeys(ask.kinds, 1), limit=1)
    turn = Turn(pool=pool, database_id=engine.database_id, number=1, wants=[want])
    claims = engine.turn(turn).claims
    if not claims:
        engine.leave(pool)
        return None
    (claim,) = claims
    return wire.Lent(pool, claim.fence, ask.lease_s, claim, engine.job(claim.id))
