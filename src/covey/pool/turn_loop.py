"""The pool's store thread: takes turns with the Source, so that a slow commit delays no time-out.

What arrives while a turn is under way travels in the next one. A turn whose outcome is unknown is followed by one with
the next number, the same reports and the list of everything that we know we hold.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from ..core.model import Report
from ..core.ports import Source
from ..core.turn import PoolEvent, Reply, Turn, WorkerState
from ..errors import CoveyError, Gone, SchemaError, TooLarge
from ..log import Log
from ..system.calls import calls
from ..worker import messages
from .capacity import Ledger, TypeCapacity, kinds_of, queues_of
from .reaper import Reaper
from .worker_process import WorkerProcess
from .worker_types import Types

RETRY_S = (0.05, 5.0)  # after a failed turn: first and longest pause
WOKEN_S = 0.2  # after its last turn a full pool looks whether the bell meant a cancel: not at each of many enqueues
GONE_S = 3.0  # a file that was moved away may be back by then; later nothing but a restart helps
CLOSING_S = 5.0  # for how long a pool that stops still tries to deliver what it knows
MOST_EVENTS = 500  # in one turn


class Outstanding(Struct):
    """What the turns so far have left to the next one."""

    reports: list[Report] = []  # they have to be said again
    unknown: bool = False  # whether the last turn was committed
    beat_at: float = 0.0  # when a turn has to show that we live
    pause_s: float = 0.0  # after the last failure; 0: the last turn went well
    gone_at: float = 0.0  # since when the queue's file is away
    give_up_at: float = 0.0  # when a pool that stops tries no more
    given_up: bool = False


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
        self.questions = Questions(source)
        self._source, self._reaper, self._log = source, reaper, log
        self._pool, self._database_id, self._beat_s = pool, database_id, beat_s
        self._lease_s = lease_s
        self._confirmed_at = 0.0  # when the last turn began that showed our beat
        self._lock = threading.Lock()
        self._reports: list[Report] = []
        self._ledger = Ledger(types)
        self._roster: list[WorkerState] | None = None
        self._given_up: dict[str, str] = {}
        self._events: list[PoolEvent] = []
        self._zygote: tuple[int, int] | None = None
        self._draining = False
        self._closing = False
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

    def resize(self, capacities: dict[str, TypeCapacity]) -> None:
        """How much each type can hold from now on; none: nothing more. What it holds already is known here."""
        with self._lock:
            grown = self._ledger.resize(capacities)
        if grown:
            self._source.wake()

    def rejoin(self, pool: int) -> None:
        """Turns go on under a new name."""
        with self._lock:
            self._pool, self._number = pool, 0
            self._reports = []
            self._ledger.forget()
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
        return calls.boot_s() - self._confirmed_at < self._lease_s

    def idle(self) -> bool:
        """Nothing is on its way to the store."""
        with self._lock:
            return not self._reports and not self._ledger

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
        left = Outstanding()
        while (events := self._events_to_tell(left)) is not None:
            timed = time.monotonic() >= left.beat_at
            if self._urgent:
                self._look_around()
            if not (timed or left.unknown or (events and self._closing) or self._worth_a_turn()):
                self._rest(left)
                continue
            turn = self._compose(left.reports, events, held=timed or left.unknown)
            began = calls.boot_s()
            self._woken, self._turned_at = False, time.monotonic()
            reply = self._send(turn, left)
            if reply is not None:
                if timed:
                    left.beat_at = time.monotonic() + self._beat_s
                self._hear(turn, reply, began)

    def _events_to_tell(self, left: Outstanding) -> list[PoolEvent] | None:
        """Those of the next turn; None if there is no next one, as everything has been said or nobody listens."""
        with self._lock:
            if left.given_up or (self._closing and not (self._reports or left.reports or self._events)):
                return None
            return self._events[:MOST_EVENTS]

    def _send(self, turn: Turn, left: Outstanding) -> Reply | None:
        """The queue's answer; None if there was none: then ``left`` has what the next turn must say again."""
        try:
            reply = self._source.turn(turn)
        except SchemaError:
            raise  # the queue was migrated, and this Covey does not fit any more: waiting mends nothing
        except (CoveyError, OSError) as error:
            if isinstance(error, TooLarge) and turn.reports:
                left.reports = self._smaller(turn.reports, error)
                self._keep(turn)
            else:
                self._wait_for_store(turn, error, left)
            return None
        if left.pause_s:
            self._log.store_back()
        left.reports, left.unknown, left.pause_s, left.gone_at = [], False, 0.0, 0.0
        self._most = 2 * self._most if self._most and self._reports else None
        return reply

    def _wait_for_store(self, turn: Turn, error: CoveyError | OSError, left: Outstanding) -> None:
        """The turn was committed or not; after a pause, ever longer ones, the next turn says the same again."""
        self._log.store_failed(error)
        left.gone_at = (left.gone_at or time.monotonic()) if isinstance(error, Gone) else 0.0
        if left.gone_at and time.monotonic() - left.gone_at > GONE_S:
            raise error  # a pool must not work on a file that nobody else can see
        left.reports, left.unknown = turn.reports, True
        while self.on_wait() == 0:
            pass  # what was claimed before does not wait for the store
        self._keep(turn)
        left.pause_s = min(max(left.pause_s * 2, RETRY_S[0]), RETRY_S[1])
        if self._closing:
            left.give_up_at = left.give_up_at or time.monotonic() + CLOSING_S
            left.given_up = time.monotonic() + left.pause_s > left.give_up_at
        if not left.given_up:
            time.sleep(left.pause_s)

    def _hear(self, turn: Turn, reply: Reply, began: float) -> None:
        """What the queue has answered is in our books and with the pool."""
        if not reply.lost and (turn.held is not None or turn.reports or reply.claims):  # an idle turn only reads
            self._confirmed_at = began
        self._settle(turn, reply)
        if self.questions:  # only now: what was just reported may be what somebody asks about
            self.questions.answer(self._pool)
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
            return self._ledger.is_worth_a_turn()

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
                wants=self._ledger.left(reports),
                workers=self._roster,
                given_up=self._given_up,
                events=events,
                draining=self._draining,
                zygote=self._zygote,
            )
            self._roster = None
            if held:
                turn.held = self._ledger.held(without=reports)
            return turn

    def _settle(self, turn: Turn, reply: Reply) -> None:
        with self._lock:
            del self._events[: len(turn.events)]
            self._ledger.settle(turn, reply.claims)
            if reply.lost:
                self._ledger.forget()
            due_at = reply.next_due_at
            self._due_at = None if due_at is None else time.monotonic() + (due_at - reply.now) / 1e6
        if reply.refused:
            self._log.refused(len(reply.refused))
        self.on_reply(reply)

    def _look_around(self) -> None:
        urgent, self._urgent = self._urgent, False
        try:
            self._reaper.look(me=self._pool, force=urgent)
        except (CoveyError, OSError) as error:
            self._log.store_failed(error)
        if urgent:
            self._woken, self._turned_at = True, 0.0

    def _rest(self, left: Outstanding) -> None:
        """Nothing is worth a turn: what tasks ask is answered, a stream is given a moment, then we sleep."""
        if self.questions:
            self.questions.answer(self._pool)
        elif not self.on_rest():
            self._sleep(left)

    def _sleep(self, left: Outstanding) -> None:
        """Until something rings, is due, or must be said."""
        self._look_around()
        served = self._source.is_served
        with self._lock:
            free = [each for each in self._ledger.left() if each.limit > 0]
            idle = served and not self._ledger and not self._events
        left_s = self._lease_s / 3 if idle else left.beat_at - time.monotonic()
        if self._due_at is not None and not served:
            left_s = min(left_s, self._due_at - time.monotonic())
        if self._woken:
            left_s = min(left_s, self._turned_at + WOKEN_S - time.monotonic())
        left_s = max(0.001, min(left_s, self._source.longest_wait_s))
        changed = self._source.wait(self._pool, queues_of(free), left_s, kinds_of(free))
        self._woken |= changed
        with self._lock:
            self._ledger.look_again()
        if idle and not changed:
            # A server has heard us wait. With nothing in our hands there is nothing else that a beat would say.
            left.beat_at = time.monotonic() + self._beat_s


class Questions:
    """What running tasks ask of the queue: the store thread answers it between two turns."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.lock = threading.Lock()  # the pool's: nobody may close a worker's socket while an answer goes into it
        self._open: list[tuple[WorkerProcess, messages.Ask]] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def put(self, worker: WorkerProcess, asked: messages.Ask) -> None:
        """It is answered soon. Under the lock."""
        self._open.append((worker, asked))
        self._source.wake()

    def answer(self, pool: int) -> None:
        """Everybody has an answer: JSON, or None if there is none to be had. Takes the lock, but not while it asks."""
        with self.lock:
            asked, self._open = self._open, []
            runs = [worker.assignments.get(ask.serial) for worker, ask in asked]
        for (worker, ask), run in zip(asked, runs, strict=True):
            text = None
            if run is not None:
                with contextlib.suppress(CoveyError, OSError):
                    found = self._source.failed_siblings(pool, run.claim.id, run.claim.fence)
                    text = msgspec.json.encode(found)
            with self.lock, contextlib.suppress(OSError):  # it is gone, or does not listen: it has a clock of its own
                messages.send_answer(worker.reports, ask.number, text)
