"""The pool: workers, timers, signals in the main thread; turns with the store in another (exchange.py).

One job's way through here: a Reply brings its claim → `_place` sends it to a worker → the worker's frame comes back →
`_done` makes the report → the next turn carries it.

Everything here runs under one lock, which neither thread holds while it waits or commits. The store thread itself
sends what it has claimed: with the main thread sending, every `send` let the other thread have the interpreter and
cost a switch (measured: 16 µs a job instead of 4). In a stream of tiny jobs (`_hot`) it also reads what the workers
send back, between two turns: with the main thread reading, it waited for the interpreter half of its time. And while a
server works on the next turn, it hands out what the last one brought (`landing.py`).
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
from ..worker import messages as wire
from ..worker import output
from .capacity import Window
from .care import Care, Parent
from .dispatcher import Dispatch
from .landing import COLLECT_S, Landing
from .memory_kills import Shortage
from .roster import Roster
from .turn_loop import Exchange
from .verdict import explain_stop, lost_report
from .watchdog import LOOK_S, Lookout
from .worker_process import Member, small_jobs
from .worker_types import Type, Types
from .workers import Crew
from .zygote_client import Births
from .zygote_process import Nursery

HOT_CLAIMS = 16  # claims in one turn, and jobs ahead per worker, that make a stream of tiny jobs
HOT_NAPS, HOT_NAP_S = 4, 0.0005
WAITING_S = 0.050  # how long a claim may wait here for a worker before it goes back
KILL_GRACE_S = 0.5  # TERM to KILL when the pool itself is in a hurry
REJOIN_S = 1.0  # between two tries to register after the pool was given up
GIVE_UP_S = 10.0  # after the last job was killed: how long the store may take to hear of it


class Pool:
    def __init__(
        self,
        exchange: Exchange,
        crew: Crew,
        birth: Callable[[], Nursery],
        log: Log,
        *,
        types: Types,
        live: str,
        grace_s: float,
        rejoin: Callable[[], None],
        parent: Parent | None = None,
        max_memory: int | None = None,
    ) -> None:
        self._exchange, self._crew, self._log = exchange, crew, log
        self._births = Births(self, crew, exchange, log, birth)
        self._note = exchange.note
        self._types = types
        self._live, self._grace_s, self._rejoin = live, grace_s, rejoin
        self._window = Window(small_jobs())
        self._dispatches = {type.name: Dispatch(crew, self._window, type, log) for type in types}
        self._roster = Roster(crew, exchange.show)
        self._care = Care(crew, parent, max_memory=max_memory)
        self._shortage = Shortage(memory_events())
        self._lock = exchange.asking.lock = threading.Lock()
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
        self._lookout = Lookout(crew, self._window, log, live=live, place=self.place, offer=self._offer)
        self._hot = self._had_to_kill = False
        self.done = self.failed = 0

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, signals: int, nursery: Nursery, workers: dict[Type, dict[Kind, int]]) -> int:
        """Works until it is told to stop; 0 if every job could finish, 1 if some had to be killed."""
        with self._lock:
            self.watch(signals, self._on_signal)
            self.watch(self._bell, self._on_news)
            self._births.adopt(nursery)
            self._crew.begin(workers)
            self._births.start()
            self._care.listen(self)
            patience_s = self._patience()
        self._exchange.on_reply = self._on_reply
        self._exchange.on_rest = self._on_rest
        self._exchange.on_crash = partial(os.eventfd_write, self._bell, 1)
        self._exchange.on_wait = self._meanwhile
        self._exchange.start()
        self._window.overlap(self._exchange.overlaps)
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
        coming_at = now + 0.5 if self._crew.coming() else None
        times = (self._lookout.at, self._births.at, self._kill_at, self._rejoin_at, self._care.at, coming_at)
        return max(0.0, min([self._roster.wake_at(now), *(at for at in times if at)]) - now)

    def _tick(self) -> None:
        now = time.monotonic()
        if self._lookout.at and now >= self._lookout.at:
            self._lookout.look(now)
        self._births.look(now)
        self._shortage.look(now)
        if self._rejoin_at and now >= self._rejoin_at:
            self._join_again()
        for member in self._crew.overdue():
            member.error = member.error or "did not report in"
            member.signal(signal.SIGKILL)
        if self._care.at and now >= self._care.at:
            self._take_care(now)
        if self._kill_at and now >= self._kill_at:
            self._kill_running()
        self._roster.tell(now)
        self._send_reports()

    def _finished(self) -> bool:
        if self._nobody():
            return True
        if self._exchange.crashed:
            raise self._exchange.crashed
        if not self._stopping or self._busy():
            return False
        self._send_reports()
        overdue = self._killed_at is not None and time.monotonic() > self._killed_at + GIVE_UP_S
        return self._exchange.idle() or overdue

    def _close(self) -> int:
        nobody = self._nobody()
        self._births.close()
        for member in list(self._crew.members.values()):
            member.signal(signal.SIGKILL)
            self._note("stopped", member.name, f"{member.done} jobs")
            self._crew.forget(member)
        self._exchange.close()
        self._selector.close()
        os.close(self._bell)
        self._log.stopped(self.done, self.failed)
        return 1 if self._had_to_kill or nobody else 0

    def _nobody(self) -> bool:
        """Not one worker could start, or none of them can any more."""
        if self._stopping:
            return False
        return self._crew.nobody or bool(self._crew.given_up and not self._crew.members and not self._crew.coming())

    # ── claims out to workers ───────────────────────────────────────────────────────────────────────────────────────

    def _on_reply(self, reply: Reply) -> None:
        """In the store thread: what was claimed is with the workers."""
        with self._lock:
            watched = self._lookout.at
            self._landing.put(reply.claims, at_once=not (self._hot and self._exchange.overlaps))
            if len(reply.claims) >= HOT_CLAIMS and self._window.ahead("sync") >= HOT_CLAIMS:
                self._heat_up()
            if self._hot:
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
        if not self._hot:
            return False
        for _ in range(HOT_NAPS):
            time.sleep(HOT_NAP_S)
            with self._lock:
                self._landing.clear()
                if not self._busy():
                    break
                if self._collect():
                    return True
        with self._lock:
            self._cool_down()
        os.eventfd_write(self._bell, 1)  # the main thread has slept through it all, and has workers to show
        return False

    def _heat_up(self) -> None:
        """From now on the store thread reads what workers send; the main thread sleeps through it."""
        if not self._hot:
            self._hot = True
            for member in self._crew.members.values():
                self.unwatch(member.reports)

    def _cool_down(self) -> None:
        if self._hot:
            self._hot = False
            for member in self._crew.members.values():
                self.on_joined(member)

    def _meanwhile(self) -> float | None:
        """In the store thread, in the middle of a turn: the server is not the only one at work. When to come again."""
        if self._hot and self._lock.acquire(blocking=False):
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
        for member in list(self._crew.members.values()):
            self._on_frames(member)
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
        return bool(self._waiting or self._landing) or any(member.flights for member in self._crew.members.values())

    def place(self, claims: Iterable[Claim]) -> None:
        """Each claim is in a worker's socket, waits a moment for a free worker, or is on its way back."""
        takes = not self._stopping and self._exchange.fresh()
        now = time.monotonic()
        claims = list(claims)
        busy = bool(claims or self._waiting)
        if claims and takes and not self._waiting:
            claims = claims[self._dispatches[self._types.of(claims[0].queue)].send_run(claims) :]
        queue = [*self._waiting, *((now, claim) for claim in claims)]
        self._waiting = []
        waiting: set[str] = set()
        for since, claim in queue:
            type = self._types.of(claim.queue)
            # Nobody is put behind a running job while an earlier one waits, so that a worker becomes free for that.
            if takes and self._dispatches[type].send(claim, behind=type not in waiting):
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
        self._exchange.offer({} if self._stopping else {name: each.offer() for name, each in self._dispatches.items()})

    # ── results back ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_frames(self, member: Member) -> None:
        try:
            messages = member.read()
        except EOFError:
            self.unwatch(member.reports)  # its end is told by the zygote
            return
        for message in messages:
            if type(message) is wire.Done:
                self._done(member, message)
            elif isinstance(message, wire.Ready):
                self._on_ready(member)
            elif isinstance(message, wire.Ask):
                self._exchange.asking.put(member, message)
            elif isinstance(message, wire.Broken):
                member.breaks(message)
        if self._waiting:
            self.place(())

    def _done(self, member: Member, message: wire.Done) -> None:
        flight = member.flights.pop(message.serial, None)
        if flight is None:
            return
        report = message.report
        if report.started_at and report.finished_at:
            self._window.note(member.kind, flight.claim.task, (report.finished_at - report.started_at) / 1e6)
        if flight.stop:
            explain_stop(flight, report)
        else:
            self._shortage.of_command(report)
        member.done += 1
        if report.outcome in ("failure", "abort"):
            member.failed += 1
            self.failed += 1
        elif report.outcome == "success":
            self.done += 1
        if flight.live:
            output.drop_live(self._live, report.id, report.fence)
        self._unsent.append(report)

    def _send_reports(self) -> None:
        if self._unsent:
            reports, self._unsent = self._unsent, []
            self._roster.tell_with_reports()
            self._exchange.report(reports)
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
        for member in self._crew.members.values():
            wanted = {flight.serial for flight in member.flights.values() if flight.claim.id in ids and not flight.stop}
            if not wanted:
                continue
            back = member.take_back() if member.kind != "async" and len(member.flights) > 1 else []
            for claim in back:
                if claim.id in ids:
                    self._unsent.append(Report(claim.id, claim.fence, "gone"))
            self.place(claim for claim in back if claim.id not in ids)
            self._lookout.cancels |= {
                (flight.claim.id, flight.claim.fence) for flight in member.flights.values() if flight.serial in wanted
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
        self._births.end()
        self._landing.clear()
        self.place(())
        for member in self._crew.members.values():
            for claim in member.take_back():
                self._unsent.append(Report(claim.id, claim.fence, "taken_back"))
        self._log.draining(self._crew.jobs())
        for member in self._crew.members.values():
            self._note("stopping", member.name, None)
        self._offer()
        self._send_reports()

    def _kill_running(self) -> None:
        """Time is up: what still runs is ended and handed back, at no cost to the jobs."""
        self._kill_at, self._killed_at = None, time.monotonic()
        if jobs := self._crew.jobs():
            self._had_to_kill = True
            self._log.killing(jobs)
        for member in self._crew.members.values():
            places = {serial: place for serial, (place, _) in member.slot.running().items()}
            for flight in member.flights.values():
                if flight.stop is None and flight.serial in places:
                    member.stop(flight, places[flight.serial], "shutdown", KILL_GRACE_S, patience_s=0.5)
                elif flight.stop is None and not member.doomed:  # received and never begun: it is frozen
                    member.doomed = True
                    member.signal(signal.SIGKILL)
        self._lookout.at = time.monotonic() + LOOK_S

    def _begin_anew(self) -> None:
        """We were given up, and what we run may run elsewhere: all of it is killed before a new name is taken."""
        self._log.lost()
        self._births.close()
        for member in list(self._crew.members.values()):
            self.unwatch(member.reports)
            if member.handle is not None:
                self.unwatch(member.handle)  # an orphan's end may be in the same batch of events
            member.signal(signal.SIGKILL)
            self._note("killed", member.name, "its pool was given up by the others")
            self._crew.forget(member)
            self._crew.want_again(member, first=member.first and member.state == "starting")
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
        self._births.bear()

    # ── workers come and go ─────────────────────────────────────────────────────────────────────────────────────────

    def _take_care(self, now: float) -> None:
        """Who has grown too large ends after its job; without its parent the pool ends."""
        for member in self._care.outgrown(now):
            self.place(member.take_back())
            self._offer()
        if self._care.is_orphan() and self._kill_at is None and self._killed_at is None:
            self._log.parent_died()
            self._note("parent_died", None, None)
            self._exchange.look_now()  # a job of its own is not handed back: it ends with it
            self._stop_claiming(now + self._grace_s)

    def on_joined(self, member: Member) -> None:
        if not self._hot:
            self.watch(member.reports, lambda _: self._on_read(member))

    def _on_read(self, member: Member) -> None:
        self._on_frames(member)
        self._send_reports()

    def _on_ready(self, member: Member) -> None:
        self._crew.ready(member)
        self._births.start()
        self._offer()

    def on_lost(self, member: Member, how: str) -> None:
        """Exactly what had started is charged for it; the rest goes back as if nothing had been."""
        self.unwatch(member.reports)
        if member.handle is not None:
            self.unwatch(member.handle)
        if not member.doomed:
            how = self._shortage.of_worker(how)
        with contextlib.suppress(EOFError):
            while messages := member.read():
                for message in messages:
                    if isinstance(message, wire.Done):
                        self._done(member, message)
                    elif isinstance(message, wire.Broken):
                        member.breaks(message)
        running = member.slot.running()
        for flight in list(member.flights.values()):
            report = lost_report(member, flight, how, self._live, started=flight.serial in running)
            self.failed += report.outcome == "worker_lost"
            self._unsent.append(report)
        if (member.flights or member.state != "ready") and not self._stopping:
            self._log.worker_lost(member.name, f"{how}{f' ({member.error})' if member.error else ''}")
        member.flights.clear()
        if self._stopping:
            self._note("stopped", member.name, how)
            self._crew.forget(member)
        else:
            self._crew.bury(member, how)
        self._births.start()
        self._offer()
        self._send_reports()
