"""The pool's store thread: takes turns with the Source, so that a slow commit delays no time-out.

What arrives while a turn is under way travels in the next one. A turn whose outcome is unknown is followed by one with
the next number, the same reports and the list of everything that we know we hold.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from ..core.model import Held, Reply, Report, Turn, Want, WorkerState
from ..core.ports import Source
from ..env import now
from ..errors import CoveyError
from ..log import Log
from .neighbours import Neighbours

GATHER_S = 0.005  # a report waits at most this long for company
RETRY_S = (0.05, 5.0)  # after a failed turn: first and longest pause


class Exchange:
    def __init__(
        self,
        source: Source,
        neighbours: Neighbours,
        log: Log,
        *,
        pool: int,
        database_id: str,
        queues: tuple[str, ...] | None,
        beat_s: float,
    ) -> None:
        self._source, self._neighbours, self._log = source, neighbours, log
        self._pool, self._database_id, self._queues, self._beat_s = pool, database_id, queues, beat_s
        self._lock = threading.Lock()
        self._reports: list[Report] = []
        self._want: Want | None = None
        self._roster: list[WorkerState] | None = None
        self._zygote: tuple[int, int] | None = None
        self._draining = False
        self._urgent = False
        self._held: dict[int, int] = {}
        self._replies: deque[Reply] = deque()
        self._closing = False
        self._dry = False  # the last turn left places empty: claiming again is pointless until something rings
        self._due_at: int | None = None
        self._back = threading.Event()
        self._number = 0
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="covey-store", daemon=True)

    # ── called by the main thread ───────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._thread.start()

    def report(self, reports: list[Report], want: Want | None, *, urgent: bool) -> None:
        """These results travel in the next turn, and this is what the pool would take then."""
        with self._lock:
            wake = not self._reports or urgent
            self._reports += reports
            self._want = want
            self._urgent |= urgent
        if wake:
            self._source.wake()

    def ask(self, want: Want | None) -> None:
        """What the pool would take in the next turn."""
        with self._lock:
            self._want = want
            wake = want is not None and want.limit > 0 and not self._dry
        if wake:
            self._source.wake()

    def rejoin(self, pool: int) -> None:
        """Turns go on under a new name."""
        with self._lock:
            self._pool, self._number = pool, 0
            self._reports, self._want = [], None
            self._held.clear()
        self._back.set()

    def tell(self, *, roster: list[WorkerState] | None = None, zygote: tuple[int, int] | None = None) -> None:
        with self._lock:
            self._roster = roster if roster is not None else self._roster
            self._zygote = zygote or self._zygote

    def drain(self) -> None:
        with self._lock:
            self._draining = True
        self._source.wake()

    def take(self) -> list[Reply]:
        """Answers that have come since the last time."""
        try:
            os.eventfd_read(self.bell)
        except BlockingIOError:
            return []
        replies = []
        while self._replies:
            replies.append(self._replies.popleft())
        return replies

    def idle(self) -> bool:
        """Nothing is on its way to the store."""
        with self._lock:
            return not self._reports and not self._held

    def close(self) -> None:
        with self._lock:
            self._closing = True
        self._source.wake()
        self._thread.join(timeout=30)

    # ── the store thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        pause_s = 0.0
        retry: list[Report] = []
        unknown = False  # whether the last turn was committed
        beat_at = 0.0
        while True:
            with self._lock:
                if self._closing and not self._reports and not retry:
                    return
            timed = time.monotonic() >= beat_at
            if not (timed or unknown or self._worth_a_turn()):
                self._rest(beat_at)
                continue
            turn = self._compose(retry, held=timed or unknown)
            try:
                reply = self._source.turn(turn)
            except (CoveyError, OSError) as error:
                self._log.store_failed(error)
                retry, unknown = turn.reports, True
                self.ask(turn.want)
                pause_s = min(max(pause_s * 2, RETRY_S[0]), RETRY_S[1])
                if self._closing:
                    return
                time.sleep(pause_s)
                continue
            if pause_s:
                self._log.store_back()
            retry, unknown, pause_s = [], False, 0.0
            if timed:
                beat_at = time.monotonic() + self._beat_s
            self._settle(turn, reply)
            if reply.lost:
                self._back.wait()
                self._back.clear()
            self._look_around()

    def _worth_a_turn(self) -> bool:
        with self._lock:
            if self._reports or self._roster is not None:
                return True
            return not self._dry and self._want is not None and self._want.limit > 0

    def _compose(self, retry: list[Report], *, held: bool) -> Turn:
        with self._lock:
            self._number += 1
            reports = retry + self._reports
            self._reports = []
            self._urgent = False
            reported = {(report.id, report.fence) for report in reports}
            holds = [Held(id, fence) for id, fence in self._held.items() if (id, fence) not in reported]
            turn = Turn(
                pool=self._pool,
                database_id=self._database_id,
                number=self._number,
                reports=reports,
                want=self._want,
                held=holds if held else None,
                workers=self._roster,
                draining=self._draining,
                zygote=self._zygote,
            )
            self._roster = None
            # What was asked for is on its way; the main thread asks anew once it has placed the answer.
            self._want = None
            return turn

    def _settle(self, turn: Turn, reply: Reply) -> None:
        with self._lock:
            for report in turn.reports:
                if self._held.get(report.id) == report.fence:
                    del self._held[report.id]
            for claim in reply.claims:
                self._held[claim.id] = claim.fence
            if reply.lost:
                self._held.clear()
            self._dry = turn.want is not None and len(reply.claims) < turn.want.limit
            self._due_at = reply.next_due_at
        if reply.refused:
            self._log.refused(len(reply.refused))
        self._replies.append(reply)
        os.eventfd_write(self.bell, 1)

    def _look_around(self) -> None:
        try:
            self._neighbours.look(me=self._pool)
        except (CoveyError, OSError) as error:
            self._log.store_failed(error)

    def _rest(self, beat_at: float) -> None:
        """Until something rings, is due, or must be said."""
        self._look_around()
        left_s = beat_at - time.monotonic()
        if self._due_at is not None:
            left_s = min(left_s, (self._due_at - now()) / 1e6)
        self._source.wait(self._pool, self._queues, max(0.001, min(left_s, 1.0)))
        with self._lock:
            self._dry = False
