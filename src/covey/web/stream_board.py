"""What streams show: one look for all of them, written down once. Each takes the newest when it is ready for it."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from ..core.model import ENDED
from ..engine.engine import Engine
from ..engine.views import Counts
from ..errors import CoveyError, StoreError, TooLong
from ..log import Log
from .engine_threads import Desk, Open
from .notifier import Hub
from .readers import LIMIT_S

PACE_S = 0.25  # at most so often is anything looked at …
LOOK_S = 1.0  # … and at least, should nobody ring
REST = 19  # seconds without a look for each second that one has taken: a twentieth of a core at most
LONGEST_S = 5.0  # such a rest: on a busy machine a look takes long that costs little, and streams must go on
FEW = 100  # jobs in one statement: each may be large

encode = msgspec.json.encode


class Board:
    """Is looked at while somebody watches. Used from one event loop; `_look` runs in a thread of its own."""

    def __init__(self, open: Open, hub: Hub, log: Log, name: str) -> None:
        self._hub, self._log = hub, log
        self._desk = Desk(open, 1, name=name, limit_s=LIMIT_S)
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()
        self._is_resting = False  # what is written down was looked at a moment ago
        self._failure: CoveyError | None = None
        self.begun = 0  # looks
        self.written = 0  # the number of the look that is written down
        self.news: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done with the next look

    @contextmanager
    def watch(self) -> Iterator[None]:
        self._watchers += 1
        self._stirred.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._keep_looking())
        try:
            yield
        finally:
            self._watchers -= 1

    async def fresh(self) -> None:
        """Somebody has looked since this was called, or a moment before."""
        if not self._is_resting:
            await asyncio.shield(self.news)
        self.check()

    def check(self) -> None:
        """Raises what the last look met with."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._desk.close()

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _keep_looking(self) -> None:
        with self._hub.pulse() as self._stirred:
            while self._watchers:
                self._stirred.clear()
                began = time.monotonic()
                self.begun += 1
                try:
                    await self._look_once()
                    self._failure, self.written = None, self.begun
                except CoveyError as error:
                    self._failure = error
                except Exception as error:  # else all streams would wait for ever
                    self._log.broke("stream", traceback.format_exc())
                    self._failure = StoreError(f"the look failed ({type(error).__name__}); the server's log says more")
                self.news.set_result(None)
                self.news = asyncio.get_running_loop().create_future()
                rest_s = min(LONGEST_S, max(PACE_S, REST * self._cost_s(time.monotonic() - began)))
                self._is_resting = True
                await asyncio.sleep(rest_s if self._failure is None else LOOK_S)
                self._is_resting = False
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stirred.wait(), LOOK_S)

    async def _look_once(self) -> None:
        raise NotImplementedError

    def _cost_s(self, took_s: float) -> float:
        return took_s


class Queues(Board):
    """All queues and the latest event. Queues are counted when something was written, and seldom if that takes long."""

    def __init__(self, open: Open, hub: Hub, log: Log) -> None:
        super().__init__(open, hub, log, "board")
        self._counts: Counts | None = None
        self._moment: Any = None  # of the counts
        self._next_count = 0.0
        self._too_long: TooLong | None = None
        self._counting_s = 0.0  # of the last look
        self._each: dict[str, bytes] = {}
        self._together: dict[tuple[str, ...] | None, bytes] = {}
        self.event = b"[]"

    def of(self, names: tuple[str, ...] | None) -> bytes:
        """The queues of these names, or all."""
        found = self._together.get(names)
        if found is None:
            wanted = self._each if names is None else [name for name in self._each if name in names]
            found = self._together[names] = b"[" + b",".join(self._each[name] for name in wanted) + b"]"
        return found

    async def _look_once(self) -> None:
        each, self.event = await self._desk.ask(self._look)
        if each != self._each:
            self._each, self._together = each, {}

    def _look(self, engine: Engine) -> tuple[dict[str, bytes], bytes]:
        self._counting_s = 0.0
        moment = engine.moment()  # before it is counted: what is written meanwhile counts next time
        if self._counts is None or moment != self._moment:
            if time.monotonic() >= self._next_count:
                self._counts, self._moment = self._count(engine), moment
            elif self._too_long is not None:
                raise self._too_long
        assert self._counts is not None
        queues = {view.name: encode(view) for view in engine.counted_queues(self._counts)}
        return queues, encode(engine.events(None, 1))

    def _count(self, engine: Engine) -> Counts:
        began = time.monotonic()
        self._too_long = None
        try:
            return engine.counts()
        except TooLong as error:
            self._too_long = error
            raise
        except CoveyError:
            began = time.monotonic()  # it was not the counting that failed: that is tried again at once
            raise
        finally:
            self._counting_s = time.monotonic() - began
            self._next_count = time.monotonic() + REST * self._counting_s

    def _cost_s(self, took_s: float) -> float:
        """Counting has a rest of its own."""
        return took_s - self._counting_s


class Shown(NamedTuple):
    """A job as streams show it."""

    queue: str | None  # None: it is gone
    has_ended: bool
    data: bytes


class Jobs(Board):
    """The jobs that anybody follows. Those are looked at when something was written."""

    def __init__(self, open: Open, hub: Hub, log: Log) -> None:
        super().__init__(open, hub, log, "jobs")
        self._wanted: Counter[str] = Counter()
        self._moment: Any = None
        self.shown: dict[str, Shown] = {}

    @contextmanager
    def follow(self, refs: Sequence[str]) -> Iterator[None]:
        self._wanted.update(refs)
        try:
            with self.watch():
                yield
        finally:
            self._wanted.subtract(refs)
            self._wanted += Counter()  # those that nobody follows any more are forgotten

    async def _look_once(self) -> None:
        refs, known = tuple(self._wanted), self.shown
        self.shown = await self._desk.ask(lambda engine: self._look(engine, refs, known))

    def _look(self, engine: Engine, refs: Sequence[str], known: dict[str, Shown]) -> dict[str, Shown]:
        moment = engine.moment()
        found = {ref: known[ref] for ref in refs if ref in known} if moment == self._moment else {}
        found |= shown_jobs(engine, [ref for ref in refs if ref not in found])
        self._moment = moment
        return found


def shown_jobs(engine: Engine, refs: Sequence[str]) -> dict[str, Shown]:
    found: dict[str, Shown] = {}
    for start in range(0, len(refs), FEW):
        some = refs[start : start + FEW]
        views = engine.jobs_of(some)
        for ref in some:
            view = views.get(ref)
            found[ref] = Shown(view.queue, view.state in ENDED, encode(view)) if view is not None else gone(ref)
    return found


def gone(ref: str) -> Shown:
    return Shown(None, True, encode({"ref": ref, "state": "removed"}))
