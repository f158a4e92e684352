"""The pool: workers, timers, signals in the main thread; turns with the store in another (turn_loop.py).

One job's way through here: a Reply brings its claim → `_place` sends it to a worker → the worker's frame comes back →
`_done` makes the report → the next turn carries it.

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
from functools import partial
from typing import Any

from ..core.model import Claim, Kind, Report
from ..core.turn import Reply
from ..env import failpoint
from ..errors import CoveyError
from ..log import Log
from ..system.cgroup import memory_events
from ..worker import messages, output
from .capacity import Prefetch
from .care import Care, Parent
from .dispatcher import Dispatcher
from .landing import COLLECT_S, Landing
from .memory_kills import MemoryKills
from .roster import Roster
from .turn_loop import TurnLoop
from .verdict import explain_stop, lost_report
from .watchdog import LOOK_S, Lookout
from .worker_process import WorkerProcess, small_jobs
from .worker_types import Type, Types
from .workers import Workers
from .zygote_client import ZygoteClient
from .zygote_process import ZygoteProcess

STREAM_CLAIMS = 16  # claims in one turn, and jobs ahead per worker, that make a stream of tiny jobs
STREAM_NAPS, STREAM_NAP_S = 4, 0.0005
WAITING_S = 0.050  # how long a claim may wait here for a worker before it goes back
KILL_GRACE_S = 0.5  # TERM to KILL when the pool itself is in a hurry
REJOIN_S = 1.0  # between two tries to register after the pool was given up
GIVE_UP_S = 10.0  # after the last job was killed: how long the store may take to hear of it


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
        self._types = types
        self._live, self._grace_s, self._rejoin = live, grace_s, rejoin
        self._prefetch = Prefetch(small_jobs())
        self._dispatchers = {type.name: Dispatcher(workers, self._prefetch, type, log) for type in types}
        self._roster = Roster(workers, turn_loop.show)
        self._care = Care(workers, parent, max_memory=max_memory)
        self._memory_kills = MemoryKills(memory_events())
        self._lock = turn_loop.asking.lock = threading.Lock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._news: list[Reply] = []  # answers that the main thread must act on
        self._selector = selectors.DefaultSelector()
        self._unsent: list[Report] = []
        self._waiting: list[tuple[float, Claim]] = []
        self._landing = Landing(self.place)
        self._stopping, self._signals = False, 0
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._rejoin_at: float | None = None  # when to try again to register
        self._lookout = Lookout(workers, self._prefetch, log, live=live, place=self.place, offer=self._offer)
        self._streaming = self._had_to_kill = False
        self.done = self.failed = 0

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, signals: int, zygote: ZygoteProcess, counts: dict[Type, dict[Kind, int]]) -> int:
        """Works until it is told to stop; 0 if every job could finish, 1 if some had to be killed."""
        with self._lock:
            self.watch(signals, self._on_signal)
            self.watch(self._bell, self._on_news)
            self._zygote.adopt(zygote)
            self._workers.begin(counts)
            self._zygote.start()
            self._care.listen(self)
            patience_s = self._patience()
        self._turn_loop.on_reply = self._on_reply
        self._turn_loop.on_rest = self._on_rest
        self._turn_loop.on_crash = partial(os.eventfd_write, self._bell, 1)
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
        times = (self._lookout.at, self._zygote.at, self._kill_at, self._rejoin_at, self._care.at, coming_at)
        return max(0.0, min([self._roster.wake_at(now), *(at for at in times if at)]) - now)

    def _tick(self) -> None:
        now = time.monotonic()
        if self._lookout.at and now >= self._lookout.at:
            self._lookout.look(now)
        self._zygote.look(now)
        self._memory_kills.look(now)
        if self._rejoin_at and now >= self._rejoin_at:
            self._join_again()
        for worker in self._workers.overdue():
            worker.error = worker.error or "did not report in"
            worker.signal(signal.SIGKILL)
        if self._care.at and now >= self._care.at:
            self._take_care(now)
        if self._kill_at and now >= self._kill_at:
            self._kill_running()
        self._roster.tell(now)
        self._send_reports()

    def _finished(self) -> bool:
        if self._nobody():
            return True
        if self._turn_loop.crashed:
            raise self._turn_loop.crashed
        if not self._stopping or self._busy():
            return False
        self._send_reports()
        overdue = self._killed_at is not None and time.monotonic() > self._killed_at + GIVE_UP_S
        return self._turn_loop.idle() or overdue

    def _close(self) -> int:
        nobody = self._nobody()
        self._zygote.close()
        for worker in list(self._workers.by_name.values()):
            worker.signal(signal.SIGKILL)
            self._note("stopped", worker.name, f"{worker.done} jobs")
            self._workers.forget(worker)
        self._turn_loop.close()
        self._selector.close()
        os.close(self._bell)
        self._log.stopped(self.done, self.failed)
        return 1 if self._had_to_kill or nobody else 0

    def _nobody(self) -> bool:
        """Not one worker could start, or none of them can any more."""
        if self._stopping:
            return False
        return self._workers.nobody or bool(
            self._workers.given_up and not self._workers.by_name and not self._workers.coming()
        )

    # ── claims out to workers ───────────────────────────────────────────────────────────────────────────────────────

    def _on_reply(self, reply: Reply) -> None:
        """In the store thread: what was claimed is with the workers."""
        with self._lock:
            watched = self._lookout.at
            self._landing.put(reply.claims, at_once=not (self._streaming and self._turn_loop.overlaps))
            if len(reply.claims) >= STREAM_CLAIMS and self._prefetch.ahead("sync") >= STREAM_CLAIMS:
                self._begin_stream()
            if self._streaming:
                self._collect()
            unwatched = watched != self._lookout.at
            self._send_reports()
            if reply.cancels or self._lookout.cancels or reply.lost or reply.stop or reply.drained:
                self._news.append(reply)
                unwatched = True
        if unwatched:
            os.eventfd_write(self._bell, 1)

    def _on_rest(self) -> bool:
        """In the store thread, before it waits: a hot pool gives its workers a moment, then it cools down."""
        if not self._streaming:
            return False
        for _ in range(STREAM_NAPS):
            time.sleep(STREAM_NAP_S)
            with self._lock:
                self._landing.clear()
                if not self._busy():
                    break
                if self._collect():
                    return True
        with self._lock:
            self._end_stream()
        os.eventfd_write(self._bell, 1)  # the main thread has slept through it all, and has workers to show
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
                if self._landing.hand_out():
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
        reported = bool(self._unsent)
        self._send_reports()
        return reported

    def _on_news(self, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        news, self._news = self._news, []
        for reply in news:
            if reply.lost:
                self._begin_anew()
                return
            self._cancel(reply)
            if (reply.stop or reply.drained) and not self._stopping and not (reply.drained and self._busy()):
                self._stop_claiming(None)

    def _busy(self) -> bool:
        return bool(self._waiting or self._landing) or any(
            worker.assignments for worker in self._workers.by_name.values()
        )

    def place(self, claims: Iterable[Claim]) -> None:
        """Each claim is in a worker's socket, waits a moment for a free worker, or is on its way back."""
        takes = not self._stopping and self._turn_loop.fresh()
        now = time.monotonic()
        claims = list(claims)
        busy = bool(claims or self._waiting)
        if claims and takes and not self._waiting:
            claims = claims[self._dispatchers[self._types.of(claims[0].queue)].send_run(claims) :]
        queue = [*self._waiting, *((now, claim) for claim in claims)]
        self._waiting = []
        waiting: set[str] = set()
        for since, claim in queue:
            type = self._types.of(claim.queue)
            # Nobody is put behind a running job while an earlier one waits, so that a worker becomes free for that.
            if takes and self._dispatchers[type].send(claim, behind=type not in waiting):
                continue
            if takes and now - since < WAITING_S:
                self._waiting.append((since, claim))
                waiting.add(type)
            else:
                self._unsent.append(Report(claim.id, claim.fence, "taken_back"))
        if busy:
            self._lookout.look_by(now + LOOK_S)  # a new time-out may be the shortest

    def _offer(self) -> None:
        """The store thread knows how much we can hold. Nothing while stopping."""
        self._turn_loop.offer(
            {} if self._stopping else {name: each.offer() for name, each in self._dispatchers.items()}
        )

    # ── results back ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_frames(self, worker: WorkerProcess) -> None:
        try:
            heard = worker.read()
        except EOFError:
            self.unwatch(worker.reports)  # its end is told by the zygote
            return
        for message in heard:
            if type(message) is messages.JobDone:
                self._done(worker, message)
            elif isinstance(message, messages.Ready):
                self._on_ready(worker)
            elif isinstance(message, messages.Ask):
                self._turn_loop.asking.put(worker, message)
            elif isinstance(message, messages.Broken):
                worker.breaks(message)
        if self._waiting:
            self.place(())

    def _done(self, worker: WorkerProcess, message: messages.JobDone) -> None:
        assignment = worker.assignments.pop(message.serial, None)
        if assignment is None:
            return
        report = message.report
        if report.started_at and report.finished_at:
            self._prefetch.note(worker.kind, assignment.claim.task, (report.finished_at - report.started_at) / 1e6)
        if assignment.stop:
            explain_stop(assignment, report)
        else:
            self._memory_kills.of_command(report)
        worker.done += 1
        if report.outcome in ("failure", "abort"):
            worker.failed += 1
            self.failed += 1
        elif report.outcome == "success":
            self.done += 1
        if assignment.live:
            output.drop_live(self._live, report.id, report.fence)
        self._unsent.append(report)

    def _send_reports(self) -> None:
        if self._unsent:
            reports, self._unsent = self._unsent, []
            self._roster.tell_with_reports()
            self._turn_loop.report(reports)
            self._offer()

    # ── cancels and the end ─────────────────────────────────────────────────────────────────────────────────────────

    def _cancel(self, reply: Reply) -> None:
        """Cancelled jobs that we hold are being stopped; what has not started is simply dropped."""
        self._landing.clear()
        ids = {held.id for held in reply.cancels}
        self._unsent += [Report(c.id, c.fence, "gone") for _, c in self._waiting if c.id in ids]
        self._waiting = [(since, claim) for since, claim in self._waiting if claim.id not in ids]
        self._lookout.cancels = {pair for pair in self._lookout.cancels if pair[0] in ids}
        if not ids:
            return
        for worker in self._workers.by_name.values():
            wanted = {
                assignment.serial
                for assignment in worker.assignments.values()
                if assignment.claim.id in ids and not assignment.stop
            }
            if not wanted:
                continue
            back = worker.take_back() if worker.kind != "async" and len(worker.assignments) > 1 else []
            for claim in back:
                if claim.id in ids:
                    self._unsent.append(Report(claim.id, claim.fence, "gone"))
            self.place(claim for claim in back if claim.id not in ids)
            self._lookout.cancels |= {
                (assignment.claim.id, assignment.claim.fence)
                for assignment in worker.assignments.values()
                if assignment.serial in wanted
            }
            self._lookout.at = time.monotonic()

    def _on_signal(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(fd, 512):
                if number not in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    continue
                self._signals += 1
                now = time.monotonic()
                kill_at = None if number == signal.SIGINT else now + self._grace_s
                if self._signals > 1:  # only signals count: `worker stop` asks through the store and signals as well
                    self._kill_at = now
                elif not self._stopping:
                    self._stop_claiming(kill_at)
                else:
                    self._kill_at = kill_at

    def _stop_claiming(self, kill_at: float | None) -> None:
        """Nothing more is claimed, what has not started goes back, what runs may finish until ``kill_at``."""
        self._stopping, self._kill_at, self._rejoin_at = True, kill_at, None
        self._zygote.end()
        self._landing.clear()
        self.place(())
        for worker in self._workers.by_name.values():
            for claim in worker.take_back():
                self._unsent.append(Report(claim.id, claim.fence, "taken_back"))
        self._log.draining(self._workers.jobs())
        for worker in self._workers.by_name.values():
            self._note("stopping", worker.name, None)
        self._offer()
        self._send_reports()

    def _kill_running(self) -> None:
        """Time is up: what still runs is ended and handed back, at no cost to the jobs."""
        self._kill_at, self._killed_at = None, time.monotonic()
        if jobs := self._workers.jobs():
            self._had_to_kill = True
            self._log.killing(jobs)
        for worker in self._workers.by_name.values():
            places = {serial: place for serial, (place, _) in worker.slot.running().items()}
            for assignment in worker.assignments.values():
                if assignment.stop is None and assignment.serial in places:
                    worker.stop(assignment, places[assignment.serial], "shutdown", KILL_GRACE_S, patience_s=0.5)
                elif assignment.stop is None and not worker.doomed:  # received and never begun: it is frozen
                    worker.doomed = True
                    worker.signal(signal.SIGKILL)
        self._lookout.at = time.monotonic() + LOOK_S

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
        self._unsent.clear()
        self._waiting.clear()
        self._landing.drop()
        self._join_again()

    def _join_again(self) -> None:
        """The pool has a new name, and workers again; if the store cannot be reached now, it is tried again."""
        self._rejoin_at = None
        try:
            self._rejoin()
        except (CoveyError, OSError) as error:
            self._log.store_failed(error)
            self._rejoin_at = None if self._stopping else time.monotonic() + REJOIN_S
            return
        self._zygote.bear()

    # ── workers come and go ─────────────────────────────────────────────────────────────────────────────────────────

    def _take_care(self, now: float) -> None:
        """Who has grown too large ends after its job; without its parent the pool ends."""
        for worker in self._care.outgrown(now):
            self.place(worker.take_back())
            self._offer()
        if self._care.is_orphan() and self._kill_at is None and self._killed_at is None:
            self._log.parent_died()
            self._note("parent_died", None, None)
            self._turn_loop.look_now()  # a job of its own is not handed back: it ends with it
            self._stop_claiming(now + self._grace_s)

    def on_joined(self, worker: WorkerProcess) -> None:
        if not self._streaming:
            self.watch(worker.reports, lambda _: self._on_read(worker))

    def _on_read(self, worker: WorkerProcess) -> None:
        self._on_frames(worker)
        self._send_reports()

    def _on_ready(self, worker: WorkerProcess) -> None:
        self._workers.ready(worker)
        self._zygote.start()
        self._offer()

    def on_lost(self, worker: WorkerProcess, how: str) -> None:
        """Exactly what had started is charged for it; the rest goes back as if nothing had been."""
        self.unwatch(worker.reports)
        if worker.handle is not None:
            self.unwatch(worker.handle)
        if not worker.doomed:
            how = self._memory_kills.of_worker(how)
        with contextlib.suppress(EOFError):
            while heard := worker.read():
                for message in heard:
                    if isinstance(message, messages.JobDone):
                        self._done(worker, message)
                    elif isinstance(message, messages.Broken):
                        worker.breaks(message)
        running = worker.slot.running()
        for assignment in list(worker.assignments.values()):
            report = lost_report(worker, assignment, how, self._live, started=assignment.serial in running)
            self.failed += report.outcome == "worker_lost"
            self._unsent.append(report)
        if (worker.assignments or worker.state != "ready") and not self._stopping:
            self._log.worker_lost(worker.name, f"{how}{f' ({worker.error})' if worker.error else ''}")
        worker.assignments.clear()
        if self._stopping:
            self._note("stopped", worker.name, how)
            self._workers.forget(worker)
        else:
            self._workers.bury(worker, how)
        self._zygote.start()
        self._offer()
        self._send_reports()
