"""The pool: workers, timers, signals in the main thread; turns with the store in another (turn_loop.py).

One job's way through here: a Reply brings its claim → the Dispatcher sends it to a worker → the worker's frame comes
back → Results makes the report → the next turn carries it.

Everything here runs under one lock, which neither thread holds while it waits or commits. The store thread itself
sends what it has claimed: with the main thread sending, every `send` let the other thread have the interpreter and
cost a switch (measured: 16 µs a job instead of 4). In a stream of tiny jobs (`_streaming`) it also reads what the
workers send back, between two turns: with the main thread reading, it waited for the interpreter half of its time. And
while a server works on the next turn, it hands out what the last one brought.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..core.model import Claim, Kind
from ..core.turn import Reply
from ..env import failpoint
from ..errors import CoveyError
from ..log import Log
from ..system.calls import calls
from ..system.process import Parent
from ..worker import messages
from .capacity import Prefetch
from .dispatcher import COLLECT_S, Dispatcher
from .ending import Ending
from .results import Results, explain_kill
from .turn_loop import TurnLoop
from .watchdog import LOOK_S, Watchdog
from .worker_process import WorkerProcess, small_jobs
from .worker_types import Type, Types
from .workers import Roster, Workers
from .zygote_client import ZygoteClient
from .zygote_process import ZygoteProcess

STREAM_CLAIMS = 16  # claims in one turn, and jobs ahead per worker, that make a stream of tiny jobs
STREAM_NAPS, STREAM_NAP_S = 4, 0.0005
REJOIN_S = 1.0  # between two tries to register after the pool was given up


class Pool:
    def __init__(
        self,
        turn_loop: TurnLoop,
        workers: Workers,
        start_zygote: Callable[[], ZygoteProcess],
        log: Log,
        *,
        types: Types,
        live: str,
        grace_s: float,
        rejoin: Callable[[], None],
        parent: Parent | None = None,
        max_memory: int | None = None,
    ) -> None:
        self._turn_loop, self._workers, self._log = turn_loop, workers, log
        self._zygote = ZygoteClient(self, workers, turn_loop, log, start_zygote)
        self._note = turn_loop.note
        self._ending, self._rejoin = Ending(grace_s), rejoin
        self._prefetch = Prefetch(small_jobs())
        self._dispatcher = Dispatcher(self, workers, self._prefetch, types, log)
        self._results = Results(self._prefetch, live)
        self._roster = Roster(workers, turn_loop.show)
        self._parent = parent
        self._lock = turn_loop.questions.lock = threading.Lock()
        self._bell = calls.wake_up()
        self._news: list[Reply] = []  # answers that the main thread must act on
        self._selector = selectors.DefaultSelector()
        self._rejoin_at: float | None = None  # when to try again to register
        self._watchdog = Watchdog(
            workers,
            self._prefetch,
            log,
            self._dispatcher,
            self._results,
            live=live,
            resize=self._resize,
            max_memory=max_memory,
        )
        self._streaming = self._had_to_kill = False

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, signals: int, zygote: ZygoteProcess, counts: dict[Type, dict[Kind, int]]) -> int:
        """Works until it is told to stop; 0 if every job could finish, 1 if some had to be killed."""
        with self._lock:
            self.watch(signals, self._on_signal)
            self.watch(self._bell, self._on_news)
            self._zygote.adopt(zygote)
            self._workers.begin(counts)
            self._zygote.start()
            if self._parent:
                self._parent.listen(self)
            patience_s = self._patience()
        self._turn_loop.on_reply = self._on_reply
        self._turn_loop.on_rest = self._on_rest
        self._turn_loop.on_crash = self._bell.ring
        self._turn_loop.on_wait = self._meanwhile
        self._turn_loop.start()
        self._prefetch.overlap(self._turn_loop.overlaps)
        failpoint("pool.started")
        while True:
            events = self._selector.select(patience_s)
            with self._lock:
                for key, _ in events:
                    # An earlier event of the same batch may have closed what this one is about.
                    if (known := self._selector.get_map().get(key.fd)) and known.data is key.data:
                        key.data(key.fileobj)
                self._tick()
                if self._finished():
                    break
                patience_s = self._patience()
        return self._close()

    def watch(self, file: Any, act: Callable[[Any], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, act)

    def unwatch(self, file: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def _patience(self) -> float | None:
        now = time.monotonic()
        coming_at = now + 0.5 if self._workers.coming() else None
        parent_at = self._parent.at if self._parent else None
        looks = (self._watchdog.at, self._watchdog.memory_at, self._zygote.at, parent_at)
        times = (*looks, self._ending.kill_at, self._rejoin_at, coming_at)
        return max(0.0, min([self._roster.wake_at(now), *(at for at in times if at)]) - now)

    def _tick(self) -> None:
        now = time.monotonic()
        if self._watchdog.at and now >= self._watchdog.at:
            self._watchdog.look(now)
        self._zygote.look(now)
        self._results.memory_kills.look(now)
        if self._rejoin_at and now >= self._rejoin_at:
            self._join_again()
        self._watchdog.kill_overdue()
        self._watchdog.retire_large(now)
        if self._parent and self._parent.has_left(now):
            self._on_parent_left(now)
        if self._ending.must_kill(now):
            self._kill_running()
        self._roster.tell(now)
        self._send_reports()

    def _finished(self) -> bool:
        if self._nobody():
            return True
        if self._turn_loop.crashed:
            raise self._turn_loop.crashed
        if not self._ending.begun or self._busy():
            return False
        self._send_reports()
        return self._turn_loop.idle() or self._ending.is_overdue(time.monotonic())

    def _close(self) -> int:
        nobody = self._nobody()
        self._zygote.close()
        for worker in list(self._workers.by_name.values()):
            worker.signal(signal.SIGKILL)
            self._note("stopped", worker.name, f"{worker.done} jobs")
            self._workers.forget(worker)
        self._turn_loop.close()
        self._selector.close()
        self._bell.close()
        self._log.stopped(self._results.done, self._results.failed)
        return 1 if self._had_to_kill or nobody else 0

    def _nobody(self) -> bool:
        return self._workers.nobody and not self._ending.begun

    # ── claims out to workers ───────────────────────────────────────────────────────────────────────────────────────

    def _on_reply(self, reply: Reply) -> None:
        """In the store thread: what was claimed is with the workers."""
        with self._lock:
            watched = self._watchdog.at
            self._dispatcher.landing.put(reply.claims, at_once=not (self._streaming and self._turn_loop.overlaps))
            if len(reply.claims) >= STREAM_CLAIMS and self._prefetch.ahead("sync") >= STREAM_CLAIMS:
                self._begin_stream()
            if self._streaming:
                self._collect()
            unwatched = watched != self._watchdog.at
            self._send_reports()
            if reply.cancels or self._watchdog.cancels or reply.lost or reply.stop or reply.drained:
                self._news.append(reply)
                unwatched = True
        if unwatched:
            self._bell.ring()

    def _on_rest(self) -> bool:
        """In the store thread, before it waits: a hot pool gives its workers a moment, then it cools down."""
        if not self._streaming:
            return False
        for _ in range(STREAM_NAPS):
            time.sleep(STREAM_NAP_S)
            with self._lock:
                self._dispatcher.landing.clear()
                if not self._busy():
                    break
                if self._collect():
                    return True
        with self._lock:
            self._end_stream()
        self._bell.ring()  # the main thread has slept through it all, and has workers to show
        return False

    def _begin_stream(self) -> None:
        """From now on the store thread reads what workers send; the main thread sleeps through it."""
        if not self._streaming:
            self._streaming = True
            for worker in self._workers.by_name.values():
                self.unwatch(worker.reports)

    def _end_stream(self) -> None:
        if self._streaming:
            self._streaming = False
            for worker in self._workers.by_name.values():
                self.on_joined(worker)

    def _meanwhile(self) -> float | None:
        """In the store thread, in the middle of a turn: the server is not the only one at work. When to come again."""
        if self._streaming and self._lock.acquire(blocking=False):
            try:
                if self._dispatcher.landing.hand_out():
                    return 0
                self._collect()
                return COLLECT_S if self._busy() else None
            finally:
                self._lock.release()
        return None

    def _collect(self) -> bool:
        """What the workers have sent by now is on its way to the store."""
        for worker in list(self._workers.by_name.values()):
            self._on_frames(worker)
        reported = bool(self._results)
        self._send_reports()
        return reported

    def _on_news(self, _: object) -> None:
        self._bell.drain()
        news, self._news = self._news, []
        for reply in news:
            if reply.lost:
                self._begin_anew()
                return
            self._watchdog.cancel({held.id for held in reply.cancels})
            if (reply.stop or reply.drained) and not self._ending.begun and not (reply.drained and self._busy()):
                self._ending.begin(None)
                self._stop_claiming()

    def _busy(self) -> bool:
        """Some job is here, running or not."""
        return bool(self._dispatcher) or any(worker.assignments for worker in self._workers.by_name.values())

    def takes_jobs(self) -> bool:
        """Whether a claim may go to a worker: ours it is for certain, and the pool goes on."""
        return not self._ending.begun and self._turn_loop.fresh()

    def hand_back(self, claim: Claim) -> None:
        self._results.hand_back(claim)

    def look_soon(self) -> None:
        self._watchdog.look_by(time.monotonic() + LOOK_S)

    def assign(self, claims: Iterable[Claim]) -> None:
        self._dispatcher.assign(claims)

    def _resize(self) -> None:
        """The store thread knows how much we can hold. Nothing while stopping."""
        self._turn_loop.resize({} if self._ending.begun else self._dispatcher.capacities())

    # ── results back ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_frames(self, worker: WorkerProcess) -> None:
        try:
            heard = worker.read()
        except EOFError:
            self.unwatch(worker.reports)  # its end is told by the zygote
            return
        for message in heard:
            if type(message) is messages.JobDone:
                self._results.job_done(worker, message)
            elif isinstance(message, messages.Ready):
                self._on_ready(worker)
            elif isinstance(message, messages.Ask):
                self._turn_loop.questions.put(worker, message)
            elif isinstance(message, messages.Broken):
                worker.breaks(message)
        self._dispatcher.assign_waiting()

    def _send_reports(self) -> None:
        if reports := self._results.take():
            self._roster.tell_with_reports()
            self._turn_loop.report(reports)
            self._resize()

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_signal(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            if self._ending.hear(os.read(fd, 512), time.monotonic()):
                self._stop_claiming()

    def _stop_claiming(self) -> None:
        """Nothing more is claimed, what has not started goes back, what runs may finish until time is up."""
        self._rejoin_at = None
        self._zygote.end()
        self._dispatcher.landing.clear()
        self._dispatcher.assign_waiting()
        for worker in self._workers.by_name.values():
            for claim in worker.take_back():
                self._results.hand_back(claim)
        self._log.draining(self._workers.jobs())
        for worker in self._workers.by_name.values():
            self._note("stopping", worker.name, None)
        self._resize()
        self._send_reports()

    def _kill_running(self) -> None:
        """Time is up: what still runs is ended and handed back, at no cost to the jobs."""
        if jobs := self._workers.jobs():
            self._had_to_kill = True
            self._log.killing(jobs)
        self._watchdog.stop_all()

    def _begin_anew(self) -> None:
        """We were given up, and what we run may run elsewhere: all of it is killed before a new name is taken."""
        self._log.lost()
        self._zygote.close()
        for worker in list(self._workers.by_name.values()):
            self.unwatch(worker.reports)
            if worker.handle is not None:
                self.unwatch(worker.handle)  # an orphan's end may be in the same batch of events
            worker.signal(signal.SIGKILL)
            self._note("killed", worker.name, "its pool was given up by the others")
            self._workers.forget(worker)
            self._workers.want_again(worker, first=worker.first and worker.state == "starting")
        self._results.drop()
        self._dispatcher.drop()
        self._join_again()

    def _join_again(self) -> None:
        """The pool has a new name, and workers again; if the store cannot be reached now, it is tried again."""
        self._rejoin_at = None
        try:
            self._rejoin()
        except (CoveyError, OSError) as error:
            self._log.store_failed(error)
            self._rejoin_at = None if self._ending.begun else time.monotonic() + REJOIN_S
            return
        self._zygote.start_another()

    # ── workers come and go ─────────────────────────────────────────────────────────────────────────────────────────

    def _on_parent_left(self, now: float) -> None:
        """Without its parent the pool ends."""
        if self._ending.lose_parent(now):
            self._log.parent_died()
            self._note("parent_died", None, None)
            self._turn_loop.look_now()  # a job of its own is not handed back: it ends with it
            self._stop_claiming()

    def on_joined(self, worker: WorkerProcess) -> None:
        if not self._streaming:
            self.watch(worker.reports, lambda _: self._on_read(worker))

    def _on_read(self, worker: WorkerProcess) -> None:
        self._on_frames(worker)
        self._send_reports()

    def _on_ready(self, worker: WorkerProcess) -> None:
        self._workers.ready(worker)
        self._zygote.start()
        self._resize()

    def on_lost(self, worker: WorkerProcess, how: str) -> None:
        """Exactly what had started is charged for it; the rest goes back as if nothing had been."""
        self.unwatch(worker.reports)
        if worker.handle is not None:
            self.unwatch(worker.handle)
        if not worker.doomed:
            how = explain_kill(how, self._results.memory_kills)
        with contextlib.suppress(EOFError):
            while heard := worker.read():
                for message in heard:
                    if isinstance(message, messages.JobDone):
                        self._results.job_done(worker, message)
                    elif isinstance(message, messages.Broken):
                        worker.breaks(message)
        busy = bool(worker.assignments)
        self._results.worker_lost(worker, how)
        if (busy or worker.state != "ready") and not self._ending.begun:
            self._log.worker_lost(worker.name, f"{how}{f' ({worker.error})' if worker.error else ''}")
        if self._ending.begun:
            self._note("stopped", worker.name, how)
            self._workers.forget(worker)
        else:
            self._workers.replace(worker, how)
        self._zygote.start()
        self._resize()
        self._send_reports()
