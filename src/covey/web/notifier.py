"""Who waits for what: pools for work, people for jobs to end. Woken by the bell, at the latest by the next look.

A ring says only that something may have changed. One thread looks what, once for everybody, and wakes as many pools as
there are jobs for: five hundred idle pools must not all come running for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from .. import env
from ..core.turn import PendingWork
from ..engine.engine import Engine
from ..errors import CoveyError
from ..log import Log
from ..store.dialect import Listener
from .engine_threads import Open

LOOK_S = 1.0
BEAT_S = 1.0
MOMENT_S = 0.05  # that whoever was woken for what is due needs to take it
MOST_TURNS = 10_000  # whose last turns are remembered
FEW = 1000  # jobs that somebody waits for: looking at more costs so much that it is done seldom …
REST = 9  # … a tenth of a core at most

Told = tuple[bool, frozenset[Any]]
Act = Callable[[Engine], None]
Rung = asyncio.Future[None]


class Waiter(Struct, eq=False):
    pool: int | None
    queues: tuple[str, ...] | None
    kinds: tuple[str, ...]
    future: asyncio.Future[bool]

    def wants(self, queue: str, kind: str) -> bool:
        return kind in self.kinds and (self.queues is None or queue in self.queues)


class Hub:
    """Used from one event loop; its threads speak to that loop only."""

    def __init__(self, open: Open, log: Log) -> None:
        self._open, self._log = open, log
        self._loop = asyncio.get_running_loop()
        # How often the bell was rung. It begins anywhere: what another server said before must not look like ours.
        self.seen = env.rng.getrandbits(48)
        self._waiters: dict[Waiter, None] = {}  # in the order of their arrival
        self._told: dict[int, Told] = {}  # what a pool was last woken for, beside work
        self._turns: dict[int, int] = {}  # the last turn of each pool
        self._beating: set[int] = set()
        self._watched: dict[Rung, tuple[int, ...]] = {}  # who waits for jobs to end
        self._pulses: set[asyncio.Event] = set()  # who wants to know of any change
        self._timer: asyncio.TimerHandle | None = None  # when what a turn saw coming is due
        self._work_ear: Listener | None = None
        self.dismissed = False
        self._closed = threading.Event()
        self._ears: list[Listener] = []
        self._hearing = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}

    def close(self) -> None:
        self._closed.set()
        with self._hearing:  # none of them is closed meanwhile
            for ear in self._ears:
                ear.wake()
        for thread in self._threads.values():
            thread.join()

    def _need(self, name: str, act: Act, after_s: float = 0.0) -> None:
        """The thread of that name runs: from its first use on, with a connection of its own."""
        if name not in self._threads:
            thread = threading.Thread(target=self._guarded, args=(act, after_s), name=f"covey-{name}", daemon=True)
            self._threads[name] = thread
            thread.start()

    # ── on the event loop ───────────────────────────────────────────────────────────────────────────────────────────

    def heard(self, pool: int | None) -> None:
        """A pool spoke: its beat moves with the next ones that are written."""
        if pool is not None:
            self._beating.add(pool)
            self._need("beats", self._beat, BEAT_S)

    def awake(self, pool: int, turn: int) -> None:
        """A pool takes a turn, so it waits no longer, whatever a connection of its own still believes."""
        if len(self._turns) >= MOST_TURNS:  # most of them of pools that were killed
            self._turns.clear()
        self._turns[pool] = max(turn, self._turns.get(pool, 0))
        for waiter in [waiter for waiter in self._waiters if waiter.pool == pool]:
            self._answer(waiter, False)

    def expect(self, due_s: float) -> None:
        """A turn has seen that something is due so soon: a look comes then, even if nobody rings."""
        at = self._loop.time() + max(0.0, due_s)
        if due_s >= LOOK_S or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look_now)

    def _look_now(self) -> None:
        self._timer = None
        if (ear := self._work_ear) is not None:
            with contextlib.suppress(OSError):  # it is just being closed
                ear.wake()

    def left(self, pool: int) -> None:
        """The pool is not known any more."""
        for waiter in [waiter for waiter in self._waiters if waiter.pool == pool]:
            self._answer(waiter, False)
        self._turns.pop(pool, None)

    async def wait(
        self,
        pool: int | None,
        queues: tuple[str, ...] | None,
        kinds: tuple[str, ...],
        timeout_s: float,
        seen: int | None,
        turn: int | None = None,
    ) -> bool:
        """True once something may have changed for this pool (None: for whoever that is); False after the time-out.

        ``turn`` is the last turn that the pool had begun when it asked: a question that a later turn has overtaken is
        about places that the pool does not have any more, and is answered at once.
        """
        self.heard(pool)  # and not once more at the end: only what a pool itself says shows that it lives
        if self.dismissed or (pool is not None and turn is not None and turn < self._turns.get(pool, 0)):
            return False
        waiter = Waiter(pool, queues, kinds, self._loop.create_future())
        # First it waits, then it compares: the thread that looks counts first, then it looks who waits.
        self._waiters[waiter] = None
        self._need("hub", self._watch_work)
        try:
            if seen is not None and seen != self.seen:
                return True  # it rang between the last answer and this question (or another server gave that answer)
            return await asyncio.wait_for(waiter.future, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiters.pop(waiter, None)

    @contextlib.contextmanager
    def watch(self, ids: Sequence[int]) -> Iterator[asyncio.Future[None]]:
        """A future that is done when one of these jobs has ended. Watch first, then look: so no end is missed."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._watched[future] = tuple(ids)
        self._need("ends", self._watch_ends)
        try:
            yield future
        finally:
            self._watched.pop(future, None)

    @contextlib.contextmanager
    def pulse(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever something may have changed."""
        event = asyncio.Event()
        self._pulses.add(event)
        self._need("hub", self._watch_work)
        self._need("ends", self._watch_ends)
        try:
            yield event
        finally:
            self._pulses.discard(event)

    def dismiss(self) -> None:
        """Everybody who waits is answered, and whoever comes from now on does not wait."""
        self.dismissed = True
        for waiter in list(self._waiters):
            self._answer(waiter, False)
        for future in self._watched:
            if not future.done():
                future.set_result(None)
        self._pulse()

    def _wake(self, found: PendingWork) -> None:
        """As many pools as there is work for, in the order of their arrival; and those that must stop something."""
        left = {(queue, kind): count for queue, kind, count in found.ready}
        due = found.due_at is not None and found.due_at <= found.now
        self._told = {pool: told for pool, told in self._told.items() if pool in found.stops or pool in found.cancels}
        for waiter in list(self._waiters):
            lane = next((lane for lane, count in left.items() if count > 0 and waiter.wants(*lane)), None)
            if lane is not None:
                left[lane] -= 1
            promotes = due and waiter.queues != ()  # somebody with a free place, if there is one
            if lane is not None or promotes or self._is_news(waiter.pool, found):
                due = due and not promotes  # one of them promotes what is due, and rings for the others
                self._answer(waiter, True)
        if due and self._waiters:
            self._answer(next(iter(self._waiters)), True)
        self._pulse()

    def _is_news(self, pool: int | None, found: PendingWork) -> bool:
        if pool is None:
            return False
        told = pool in found.stops, frozenset(found.cancels.get(pool, ()))
        if told == (False, frozenset()) or told == self._told.get(pool):
            return False
        self._told[pool] = told
        return True

    def _answer(self, waiter: Waiter, changed: bool) -> None:
        self._waiters.pop(waiter, None)
        if not waiter.future.done():
            waiter.future.set_result(changed)

    def _pulse(self) -> None:
        for event in self._pulses:
            event.set()

    def _tell(self, rungs: Sequence[Rung]) -> None:
        for rung in rungs:
            if not rung.done():
                rung.set_result(None)
        self._pulse()

    def _lose(self, lost: set[int]) -> None:
        for pool in lost:
            self._turns.pop(pool, None)
        for waiter in [waiter for waiter in self._waiters if waiter.pool in lost]:
            self._answer(waiter, True)

    # ── threads ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _guarded(self, act: Act, after_s: float) -> None:
        """A store that fails for a while ends no thread."""
        engine: Engine | None = None
        self._closed.wait(after_s)
        while not self._closed.is_set():
            try:
                engine = engine or self._open()
                act(engine)
            except (CoveyError, OSError) as error:
                self._log.store_failed(error)
                self._closed.wait(1.0)
            except Exception:  # without this thread nobody would be woken, or everybody given up
                self._log.broke("waiting", traceback.format_exc())
                self._closed.wait(1.0)
        if engine:
            engine.close()

    def _listen(self, engine: Engine, who: str) -> Listener | None:
        try:
            ear = engine.store.listen(who)
        except OSError:
            return None
        with self._hearing:
            self._ears.append(ear)
        if self._closed.is_set():
            ear.wake()
        return ear

    def _hear(self, ear: Listener | None, timeout_s: float) -> bool:
        if ear is not None:
            return ear.wait(timeout_s)
        self._closed.wait(min(timeout_s, 0.1))
        return True

    def _watch_work(self, engine: Engine) -> None:
        self._work_ear = ear = self._listen(engine, "pool")
        left_s = 0.0  # what was rung before anybody listened is seen at once
        try:
            while not self._closed.is_set():
                if self._hear(ear, left_s):
                    self.seen += 1  # before the look: who asks from now on was not part of it
                left_s = LOOK_S
                if self._waiters:
                    found = engine.pending_work()
                    if found.due_at is not None:
                        left_s = min(LOOK_S, max(0.001, (found.due_at - found.now) / 1e6))
                    self._post(self._wake, found)
                    if found.due_at is not None and found.due_at <= found.now:
                        left_s = MOMENT_S
                elif self._pulses:
                    self._post(self._pulse)
        finally:
            self._work_ear = None
            self._drop(ear)

    def _watch_ends(self, engine: Engine) -> None:
        ear = self._listen(engine, "end")
        left_s = next_many = 0.0
        try:
            while not self._closed.is_set():
                self._hear(ear, left_s)
                began = time.monotonic()
                watched = list(self._watched.items())
                many = [each for each in watched if len(each[1]) > FEW]
                if many and began < next_many:
                    watched = [each for each in watched if len(each[1]) <= FEW]
                if watched or self._pulses:
                    self._post(self._tell, self._ended(engine, watched))
                if many and began >= next_many:
                    next_many = time.monotonic() + REST * (time.monotonic() - began)
                left_s = min(LOOK_S, max(0.0, next_many - time.monotonic())) if many else LOOK_S
        finally:
            self._drop(ear)

    @staticmethod
    def _ended(engine: Engine, watched: Sequence[tuple[Rung, tuple[int, ...]]]) -> list[Rung]:
        """Those who wait for a job that has ended."""
        ids = {id for _, each in watched for id in each}
        ended = engine.ended(list(ids)) if ids else set()
        return [rung for rung, each in watched if not ended.isdisjoint(each)] if ended else []

    def _beat(self, engine: Engine) -> None:
        while not self._closed.is_set():
            beating, self._beating = self._beating, set()
            if beating and (lost := engine.beat(sorted(beating))):
                self._post(self._lose, lost)
            self._closed.wait(BEAT_S)

    def _drop(self, ear: Listener | None) -> None:
        if ear is not None:
            with self._hearing:
                self._ears.remove(ear)
                ear.close()

    def _post(self, act: Any, *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: so is everybody who waited
            self._loop.call_soon_threadsafe(act, *args)
