"""The pool's store thread: takes turns with the Source, so that a slow commit delays no time-out.

What arrives while a turn is under way travels in the next one. A turn whose outcome is unknown is followed by one with
the next number, the same reports and the list of everything that we know we hold.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from ..core.model import KINDS, Claim, Kind, Report
from ..core.ports import Source
from ..core.turn import Capacity, Held, PoolEvent, Reply, Turn, WorkerState
from ..errors import CoveyError, Gone, SchemaError, TooLarge
from ..log import Log
from .asking import Asking
from .reaper import Reaper
from .worker_types import Types

RETRY_S = (0.05, 5.0)  # after a failed turn: first and longest pause
WOKEN_S = 0.2  # after its last turn a full pool looks whether the bell meant a cancel: not at each of many enqueues
GONE_S = 3.0  # a file that was moved away may be back by then; later nothing but a restart helps
CLOSING_S = 5.0  # for how long a pool that stops still tries to deliver what it knows
MOST_EVENTS = 500  # in one turn
_QUEUE_AND_KIND = attrgetter("queue", "kind")


class Offer(Struct, frozen=True):
    """What a worker type can hold: who stands ready by kind, how many may work, how far ahead short jobs are taken."""

    ready: dict[str, int]
    count: int  # command and sync workers that may work at a time
    ahead: dict[str, int]  # jobs of one such worker
    places: int  # jobs of one async worker

    def total(self) -> int:
        return sum(ready * self.ahead.get(kind, 1) for kind, ready in self.ready.items())

    def room(self, queues: tuple[str, ...] | None, load: dict[str, int], root: int | None = None) -> Capacity:
        """Free places by kind, beside what is held already."""
        working = {kind: -(-load.get(kind, 0) // ahead) for kind, ahead in self.ahead.items()}
        free: dict[str, int] = {}
        for kind, ready in self.ready.items():
            if kind == "async":
                places = ready * self.places
            else:
                others = sum(working.values()) - working[kind]
                places = min(ready, max(0, self.count - others)) * self.ahead[kind]
            free[kind] = max(0, places - load.get(kind, 0))
        bound = max((free.get(kind, 0) for kind in self.ahead), default=0)
        idle = sum(working.values()) < self.count
        return Capacity(queues, free, bound + free.get("async", 0), idle=idle, bound=bound, root=root)


class TurnLoop:
    def __init__(
        self,
        source: Source,
        reaper: Reaper,
        log: Log,
        *,
        pool: int,
        database_id: str,
        types: Types,
        beat_s: float,
        lease_s: float,
    ) -> None:
        self.on_reply: Callable[[Reply], None] = lambda reply: None  # called in the store thread
        # Likewise, before it waits. True: there is something to do after all.
        self.on_rest: Callable[[], bool] = lambda: False
        # Likewise, again and again in the middle of a turn: for how long the next time can wait. None: for good.
        self.on_wait: Callable[[], float | None] = lambda: None
        self.overlaps = False  # whether that ever happens
        self.on_crash: Callable[[], None] = lambda: None  # likewise; `crashed` says why
        self.crashed: BaseException | None = None
        self.asking = Asking(source)
        self._source, self._reaper, self._log = source, reaper, log
        self._pool, self._database_id, self._types, self._beat_s = pool, database_id, types, beat_s
        self._lease_s = lease_s
        self._confirmed_at = 0.0  # when the last turn began that showed our beat
        self._lock = threading.Lock()
        self._reports: list[Report] = []
        self._offers: dict[str, Offer] = {}  # by worker type
        self._roster: list[WorkerState] | None = None
        self._given_up: dict[str, str] = {}
        self._events: list[PoolEvent] = []
        self._zygote: tuple[int, int] | None = None
        self._draining = False
        self._held: dict[int, tuple[int, str, str]] = {}  # job → fence, kind, worker type
        self._load: dict[str, dict[str, int]] = {type.name: {} for type in types}  # how many of those
        self._closing = False
        # Types whose places the last turn could not fill: claiming for them is pointless until something rings.
        self._empty: set[str] = set()
        self._due_at: float | None = None  # by our own clock: the queue's may go differently
        self._woken = False  # since the last turn began
        self._urgent = False  # a look around does not wait for its time
        self._turned_at = 0.0
        self._back = threading.Event()
        self._number = 0
        self._most: int | None = None  # reports of one turn, once some did not fit into one
        self._thread = threading.Thread(target=self._run, name="covey-store", daemon=True)

    # ── called by the main thread ───────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self.overlaps = self._source.while_waiting(self.on_wait)
        self._thread.start()

    def report(self, reports: list[Report]) -> None:
        """These results travel in the next turn."""
        if self._log.tells_jobs:
            for report in reports:
                self._log.job_ended(report)
        with self._lock:
            wake = not self._reports
            self._reports += reports
        if wake:
            self._source.wake()

    def offer(self, offers: dict[str, Offer]) -> None:
        """How much each type can hold from now on; none: nothing more. What it holds already is known here."""
        with self._lock:
            if offers == self._offers:
                return
            before, self._offers = self._offers, offers
            grown = {
                name for name, offer in offers.items() if name not in before or offer.total() > before[name].total()
            }
            self._empty -= grown
        if grown:
            self._source.wake()

    def rejoin(self, pool: int) -> None:
        """Turns go on under a new name."""
        with self._lock:
            self._pool, self._number = pool, 0
            self._reports = []
            self._forget()
        self._back.set()

    def tell(self, *, zygote: tuple[int, int]) -> None:
        with self._lock:
            self._zygote = zygote

    def show(self, roster: list[WorkerState], given_up: dict[str, str], *, wakes: bool = True) -> None:
        """People see these workers, and what cannot start; not ``wakes``: with what the caller reports next."""
        with self._lock:
            self._roster, self._given_up = roster, given_up
        if wakes:
            self._source.wake()

    def note(self, kind: str, worker: str | None, text: str | None) -> None:
        """What happened, to which worker, more of it: in the books after the next turn."""
        with self._lock:
            self._events.append(PoolEvent(time.time_ns() // 1000, kind, worker, text))

    def drain(self) -> None:
        with self._lock:
            self._draining = True
        self._source.wake()

    def look_now(self) -> None:
        """Who is gone is seen at once, and what that cancels is stopped."""
        self._urgent = True
        self._source.wake()

    def fresh(self) -> bool:
        """Whether our claims are certainly still ours: nobody can have given us up since the last beat.

        After a long stop (SIGSTOP, a suspended machine) they may run elsewhere by now, and only a turn can tell.
        """
        return _boottime() - self._confirmed_at < self._lease_s

    def idle(self) -> bool:
        """Nothing is on its way to the store."""
        with self._lock:
            return not self._reports and not self._held

    def close(self) -> None:
        with self._lock:
            self._closing = True
        self._back.set()
        self._source.wake()
        self._thread.join(timeout=30)

    # ── the store thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._take_turns()
        except BaseException as error:  # a pool without turns must not live on: it would look alive and do nothing
            self.crashed = error
            self.on_crash()

    def _take_turns(self) -> None:
        pause_s = 0.0
        retry: list[Report] = []
        unknown = False  # whether the last turn was committed
        beat_at = give_up_at = gone_at = 0.0
        while True:
            with self._lock:
                if self._closing and not (self._reports or retry or self._events):
                    return
                events = self._events[:MOST_EVENTS]
            timed = time.monotonic() >= beat_at
            if self._urgent:
                self._look_around()
            if not (timed or unknown or (events and self._closing) or self._worth_a_turn()):
                if self.asking:
                    self.asking.answer(self._pool)
                elif not self.on_rest():
                    beat_at = self._rest(beat_at)
                continue
            turn = self._compose(retry, events, held=timed or unknown)
            began = _boottime()
            self._woken, self._turned_at = False, time.monotonic()
            try:
                reply = self._source.turn(turn)
            except SchemaError:
                raise  # the queue was migrated, and this Covey does not fit any more: waiting mends nothing
            except (CoveyError, OSError) as error:
                if isinstance(error, TooLarge) and turn.reports:
                    retry = self._smaller(turn.reports, error)
                    self._keep(turn)
                    continue
                self._log.store_failed(error)
                gone_at = (gone_at or time.monotonic()) if isinstance(error, Gone) else 0.0
                if gone_at and time.monotonic() - gone_at > GONE_S:
                    raise  # a pool must not work on a file that nobody else can see
                retry, unknown = turn.reports, True
                while self.on_wait() == 0:
                    pass  # what was claimed before does not wait for the store
                self._keep(turn)
                pause_s = min(max(pause_s * 2, RETRY_S[0]), RETRY_S[1])
                if self._closing:
                    give_up_at = give_up_at or time.monotonic() + CLOSING_S
                    if time.monotonic() + pause_s > give_up_at:
                        return
                time.sleep(pause_s)
                continue
            if pause_s:
                self._log.store_back()
            retry, unknown, pause_s, gone_at = [], False, 0.0, 0.0
            self._most = 2 * self._most if self._most and self._reports else None
            if timed:
                beat_at = time.monotonic() + self._beat_s
            if not reply.lost and (turn.held is not None or turn.reports or reply.claims):  # an idle turn only reads
                self._confirmed_at = began
            self._settle(turn, reply)
            if self.asking:  # only now: what was just reported may be what somebody asks about
                self.asking.answer(self._pool)
            if reply.lost:
                self._back.wait()
                self._back.clear()
            self._look_around()

    def _keep(self, turn: Turn) -> None:
        """A failed turn has shown nobody the workers."""
        with self._lock:
            if self._roster is None:
                self._roster = turn.workers

    def _smaller(self, reports: list[Report], error: TooLarge) -> list[Report]:
        """What does not fit into one turn goes in several. What fits into none has failed, whatever it had to say."""
        if len(reports) > 1:
            self._most = len(reports) // 2
            return reports
        (one,) = reports
        why = f"what became of it is too large to be told ({error})"
        return [Report(one.id, one.fence, "abort", one.started_at, one.finished_at, one.worker, why)]

    def _worth_a_turn(self) -> bool:
        now = time.monotonic()
        if self._due_at is not None and now >= self._due_at:
            return True  # a full pool promotes too, and a tree's time is over whoever works on it
        if self._woken and now >= self._turned_at + WOKEN_S:
            return True  # a full pool has no place for a job, but what it runs may have been cancelled
        with self._lock:
            if self._reports or self._roster is not None:
                return True
            return any(want.limit > 0 for want in self._room([], self._empty))

    def _compose(self, retry: list[Report], events: list[PoolEvent], *, held: bool) -> Turn:
        with self._lock:
            self._number += 1
            reports = retry + self._reports
            self._reports = [] if self._most is None else reports[self._most :]
            del reports[len(reports) - len(self._reports) :]
            turn = Turn(
                pool=self._pool,
                database_id=self._database_id,
                number=self._number,
                reports=reports,
                wants=self._room(reports),
                workers=self._roster,
                given_up=self._given_up,
                events=events,
                draining=self._draining,
                zygote=self._zygote,
            )
            self._roster = None
            if held:
                reported = {(report.id, report.fence) for report in reports}
                turn.held = [Held(id, fence) for id, (fence, *_) in self._held.items() if (id, fence) not in reported]
            return turn

    def _room(self, reports: list[Report], without: Container[str] = ()) -> list[Capacity]:
        """Free places by type once these reports have been heard."""
        load = {name: dict(kinds) for name, kinds in self._load.items()}
        for report in reports:
            if (found := self._held.get(report.id)) and found[0] == report.fence:
                load[found[2]][found[1]] -= 1
        return [
            self._offers[type.name].room(type.queues, load[type.name], type.root)
            for type in self._types
            if type.name in self._offers and type.name not in without
        ]

    def _settle(self, turn: Turn, reply: Reply) -> None:
        with self._lock:
            held, load = self._held, self._load
            del self._events[: len(turn.events)]
            for report in turn.reports:
                if (found := held.get(report.id)) and found[0] == report.fence:
                    del held[report.id]
                    load[found[2]][found[1]] -= 1
            claimed: dict[str, int] = {}
            for (queue, kind), claims in _lanes_of(reply.claims):
                type, count = self._types.of(queue), len(claims)
                claimed[type] = claimed.get(type, 0) + count
                load[type][kind] = load[type].get(kind, 0) + count
                held.update([(claim.id, (claim.fence, kind, type)) for claim in claims])
            if reply.lost:
                self._forget()
            limits = {self._types.serving(want.queues): want.limit for want in turn.wants}
            self._empty = {name for name, limit in limits.items() if claimed.get(name, 0) < limit}
            due_at = reply.next_due_at
            self._due_at = None if due_at is None else time.monotonic() + (due_at - reply.now) / 1e6
        if reply.refused:
            self._log.refused(len(reply.refused))
        self.on_reply(reply)

    def _forget(self) -> None:
        self._held.clear()
        for load in self._load.values():
            load.clear()

    def _look_around(self) -> None:
        urgent, self._urgent = self._urgent, False
        try:
            self._reaper.look(me=self._pool, force=urgent)
        except (CoveyError, OSError) as error:
            self._log.store_failed(error)
        if urgent:
            self._woken, self._turned_at = True, 0.0

    def _rest(self, beat_at: float) -> float:
        """Until something rings, is due, or must be said. When the next timed beat is."""
        self._look_around()
        served = self._source.is_served
        with self._lock:
            room = [want for want in self._room([]) if want.limit > 0]
            idle = served and not self._held and not self._events
        left_s = self._lease_s / 3 if idle else beat_at - time.monotonic()
        if self._due_at is not None and not served:
            left_s = min(left_s, self._due_at - time.monotonic())
        if self._woken:
            left_s = min(left_s, self._turned_at + WOKEN_S - time.monotonic())
        left_s = max(0.001, min(left_s, self._source.longest_wait_s))
        changed = self._source.wait(self._pool, _queues_of(room), left_s, _kinds_of(room))
        self._woken |= changed
        with self._lock:
            self._empty.clear()
        # A server has heard us wait. With nothing in our hands there is nothing else that a beat would say.
        return time.monotonic() + self._beat_s if idle and not changed else beat_at


def _lanes_of(claims: list[Claim]) -> list[tuple[tuple[str, Kind], list[Claim]]]:
    """By queue and kind, those that follow each other together: a stream is one run for the most part."""
    return [(lane, list(each)) for lane, each in groupby(claims, key=_QUEUE_AND_KIND)]


def _queues_of(room: list[Capacity]) -> tuple[str, ...] | None:
    """Where there is a free place for something: None is any queue, none at all a full pool."""
    if any(want.queues is None for want in room):
        return None
    return tuple(dict.fromkeys(queue for want in room for queue in want.queues or ()))


def _kinds_of(room: list[Capacity]) -> tuple[Kind, ...]:
    return tuple(kind for kind in KINDS if any(want.places.get(kind, 0) > 0 for want in room))


def _boottime() -> float:
    """Seconds, counting those that the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
