"""Server-sent events: what changes, as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from ..core import bodies, wire
from ..core.model import ENDED
from ..engine.engine import Engine
from ..errors import CoveyError, Forbidden, NotFound
from .request import Gone, HttpError, Request, Send

if TYPE_CHECKING:
    from .desk import Desk
    from .hub import Hub
    from .verbs import Call

MOST = 100  # streams at a time
PACE_S = 0.25  # at most so often is anything looked at for one stream
QUIET_S = 15.0  # a comment keeps the connection alive, and finds out who is gone
STUCK_S = 15.0  # a reader that takes nothing for so long is cut


class Streams:
    def __init__(self, desk: Desk, hub: Hub) -> None:
        self._desk, self._hub = desk, hub
        self._open: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        for task in self._open:
            task.cancel()

    async def serve(self, call: Call, request: Request, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        if len(self._open) >= MOST:
            raise HttpError(503, "too_many_streams", f"{MOST} streams are open already; close one first")
        query: bodies.StreamQuery = call.query
        if not query.job and call.guest.queues is not None:
            raise Forbidden("a token for some queues only follows single jobs: ?job=ID")
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            first = await self._look(call)  # an unknown job is a 404, not an empty stream
            head = [(b"content-type", b"text/event-stream; charset=utf-8"), *headers]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await self._run(call, request, send, first)
        finally:
            self._open.discard(task)

    async def _run(self, call: Call, request: Request, send: Send, first: dict[str, Any]) -> None:
        leaving = asyncio.ensure_future(request.gone())
        try:
            async with aclosing(self._events(call, first, leaving)) as events:
                async for chunk in events:
                    part = {"type": "http.response.body", "body": chunk, "more_body": True}
                    await asyncio.wait_for(send(part), STUCK_S)
            await send({"type": "http.response.body", "body": b""})
        except CoveyError as error:  # the token was revoked, or the queue cannot be used: the answer has begun already
            said = msgspec.json.encode(wire.failure_of(error)[1])
            await send({"type": "http.response.body", "body": b"event: error\ndata: " + said + b"\n\n"})
        except TimeoutError:
            raise Gone from None
        except asyncio.CancelledError:
            await send({"type": "http.response.body", "body": b""})  # the server stops
        finally:
            leaving.cancel()

    async def _events(self, call: Call, found: dict[str, Any], leaving: asyncio.Future[None]) -> AsyncGenerator[bytes]:
        shown: dict[str, bytes] = {}
        with self._hub.pulse() as changed:
            quiet_s = 0.0
            while not leaving.done():
                news = {name: msgspec.json.encode(value) for name, value in found.items()}
                fresh = [(name, data) for name, data in news.items() if shown.get(name) != data]
                shown = news
                for name, data in fresh:
                    yield b"event: " + name.partition(" ")[0].encode() + b"\ndata: " + data + b"\n\n"
                if call.query.job and all(_has_ended(value) for value in found.values()):
                    yield b"event: end\ndata: {}\n\n"
                    return
                quiet_s = 0.0 if fresh else quiet_s + 1.0
                if quiet_s >= QUIET_S:
                    yield b": still here\n\n"
                    quiet_s = 0.0
                pulse = asyncio.ensure_future(changed.wait())
                await asyncio.wait((pulse, leaving), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                pulse.cancel()
                changed.clear()
                await asyncio.wait((leaving,), timeout=PACE_S)
                await call.admit()
                found = await self._look(call, known=found)

    async def _look(self, call: Call, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the stream shows: its jobs, or the whole queue."""

        def look(engine: Engine) -> dict[str, Any]:
            from .verbs import seen_job

            if not call.query.job:
                return {"queues": engine.queues(), "event": engine.events(None, 1)}
            found: dict[str, Any] = {}
            for ref in call.query.job:
                try:
                    found[f"job {ref}"] = seen_job(engine, call.guest, ref)
                except NotFound:
                    if known is None:
                        raise
                    found[f"job {ref}"] = {"ref": ref, "state": "removed"}
            return found

        return await self._desk.ask(look)


def _has_ended(value: Any) -> bool:
    state = value["state"] if isinstance(value, dict) else value.state
    return state in ENDED or state == "removed"
