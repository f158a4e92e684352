"""Server-sent events: what changes, as it changes. A reader that is slow misses what came between, and nobody waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..core import bodies, endpoints
from ..errors import CoveyError, NotFound, StoreError
from .auth import Guest
from .readers import Readers
from .request import Gone, HttpError, Request, Send
from .stream_board import Board, Jobs, Queues, Shown, gone, shown_jobs

if TYPE_CHECKING:
    from .api import Call

MOST = 100  # streams at a time
AGAIN_S = 1.0  # so soon a token that was revoked ends its streams
QUIET_S = 15.0  # a comment keeps the connection alive, and finds out who is gone
STUCK_S = 15.0  # a reader that takes nothing for so long is cut

Frames = dict[str, bytes]  # by the event's name, and whose it is


class Streams:
    def __init__(self, readers: Readers, queues: Queues, jobs: Jobs) -> None:
        self._readers, self._queues, self._jobs = readers, queues, jobs
        self._open: set[asyncio.Task[Any]] = set()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for task in self._open:
            task.cancel()
        for board in (self._queues, self._jobs):
            board.stop()

    async def serve(self, call: Call, request: Request, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        if self._closed:
            raise StoreError("the server is stopping; try again soon")
        if len(self._open) >= MOST:
            again = [("retry-after", "5")]
            raise HttpError(503, "too_many_streams", f"{MOST} streams are open already; close one first", again)
        query: bodies.StreamQuery = call.query
        subject = SomeJobs(self._jobs, self._readers, query.job) if query.job else Whole(self._queues)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with subject.watched():
                await subject.look(call.guest)  # an unknown job is a 404, not an empty stream
                head = [(b"content-type", b"text/event-stream; charset=utf-8"), *headers]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await self._run(subject, call, request, send)
        finally:
            self._open.discard(task)

    async def _run(self, subject: Subject, call: Call, request: Request, send: Send) -> None:
        leaving = asyncio.ensure_future(request.gone())
        try:
            async with aclosing(_events(subject, call, leaving)) as events:
                async for chunk in events:
                    part = {"type": "http.response.body", "body": chunk, "more_body": True}
                    await asyncio.wait_for(send(part), STUCK_S)
            await send({"type": "http.response.body", "body": b""})
        except CoveyError as error:  # the token was revoked, or the queue cannot be used: the answer has begun already
            said = msgspec.json.encode(endpoints.failure_of(error)[1])
            await send({"type": "http.response.body", "body": b"event: error\ndata: " + said + b"\n\n"})
        except TimeoutError:
            raise Gone from None
        except asyncio.CancelledError:
            await send({"type": "http.response.body", "body": b""})  # the server stops
        finally:
            leaving.cancel()


async def _events(subject: Subject, call: Call, leaving: asyncio.Future[None]) -> AsyncGenerator[bytes]:
    guest, shown = call.guest, Frames()
    spoken_at = time.monotonic()
    while not leaving.done():
        news = subject.board.news  # before the look: what comes meanwhile is not slept through
        frames = subject.frames(guest)
        fresh = [name for name, data in frames.items() if shown.get(name) != data]
        shown = frames
        for name in fresh:
            yield b"event: " + name.partition(" ")[0].encode() + b"\ndata: " + frames[name] + b"\n\n"
        if subject.has_ended(guest):
            yield b"event: end\ndata: {}\n\n"
            return
        if fresh:
            spoken_at = time.monotonic()
        elif time.monotonic() - spoken_at >= QUIET_S:
            yield b": still here\n\n"
            spoken_at = time.monotonic()
        await asyncio.wait((news, leaving), timeout=AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
        guest = await call.admit()
        subject.board.check()


class Subject(Protocol):
    """What a stream is about."""

    @property
    def board(self) -> Board: ...

    def watched(self) -> AbstractContextManager[None]: ...

    async def look(self, guest: Guest) -> None: ...

    def frames(self, guest: Guest) -> Frames: ...

    def has_ended(self, guest: Guest) -> bool: ...


class Whole:
    """All queues that the guest may see; whoever may see them all sees the latest event too."""

    def __init__(self, board: Queues) -> None:
        self.board = board

    def watched(self) -> AbstractContextManager[None]:
        return self.board.watch()

    async def look(self, guest: Guest) -> None:
        await self.board.fresh()

    def frames(self, guest: Guest) -> Frames:
        frames = {"queues": self.board.of(guest.queues)}
        return frames | {"event": self.board.event} if guest.queues is None else frames

    def has_ended(self, guest: Guest) -> bool:
        return False


class SomeJobs:
    """These jobs. One that has come into a queue which is none of the guest's business is gone."""

    def __init__(self, board: Jobs, readers: Readers, refs: tuple[str, ...]) -> None:
        self.board = board
        self._readers, self._refs = readers, refs
        self._first: dict[str, Shown] = {}
        self._known = board.begun  # looks that may have begun before the first one of our own

    def watched(self) -> AbstractContextManager[None]:
        return self.board.follow(self._refs)

    async def look(self, guest: Guest) -> None:
        """The board may know nothing of them yet, and must not be made to look by everybody who asks."""
        self._first = await self._readers.ask(lambda engine: shown_jobs(engine, self._refs))
        for ref in self._refs:
            if (queue := self._first[ref].queue) is None or not guest.may_see(queue):
                raise NotFound(f"no job {ref!r}; `covey list` shows what there is")

    def frames(self, guest: Guest) -> Frames:
        return {f"job {ref}": shown.data for ref, shown in self._shown(guest)}

    def has_ended(self, guest: Guest) -> bool:
        return all(shown.has_ended for _, shown in self._shown(guest))

    def _shown(self, guest: Guest) -> list[tuple[str, Shown]]:
        newest = self.board.shown if self.board.written > self._known else self._first
        return [
            (ref, shown if shown.queue is None or guest.may_see(shown.queue) else gone(ref))
            for ref, shown in ((ref, newest[ref]) for ref in self._refs)
        ]
