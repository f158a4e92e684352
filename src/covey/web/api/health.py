"""How the server is: for whoever restarts it, and for whoever sends it work. Open to everybody."""

from __future__ import annotations

import asyncio
from typing import Any

from ... import __version__
from ...core import bodies, endpoints
from ...engine.engine import Engine
from ...errors import CoveyError
from ...log import Log
from ..engine_threads import Desk

READY_S = 5.0  # a store that takes longer cannot be used


class Probes:
    def __init__(self, desk: Desk, log: Log) -> None:
        self._desk, self._log = desk, log
        self.answers = {"livez": self._livez, "readyz": self._readyz, "health": self._health}

    async def _livez(self) -> Any:
        return bodies.Alive("alive", __version__)

    async def _readyz(self) -> Any:
        reason = await self._unready()
        return bodies.Ready("unavailable" if reason else "ready", __version__, reason)

    async def _health(self) -> Any:
        """The same, without the reason."""
        return bodies.Health("unavailable" if await self._unready() else "ready", __version__)

    async def _unready(self) -> str | None:
        """Why the queue cannot be used; None if it can. No path and no address: those are in the log."""
        try:
            return await asyncio.wait_for(self._desk.ask(unready), READY_S)
        except TimeoutError:
            return f"the database did not answer within {READY_S:g} s"
        except Exception as error:
            self._log.store_failed(error)
            code = endpoints.failure_of(error)[1].error.code if isinstance(error, CoveyError) else type(error).__name__
            return f"the database cannot be used ({code}); the server's log says why"


def unready(engine: Engine) -> str | None:
    """Why no work should be sent here although the store answers; None if nothing speaks against it."""
    engine.stored_settings()
    if any(found.level == "broken" for found in engine.disk()):
        return "the disk of the queue is full; `covey status` on its host says which"
    return None
