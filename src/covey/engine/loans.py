"""Jobs on loan: one job for one worker that speaks plain HTTP. Each loan is a pool of its own, with its own lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..core.label import suffix
from ..core.model import Claim, Held, Kind, Outcome, PoolInfo, Report, Row, Spawn, Turn, Want, WorkerState
from ..env import failpoint
from ..errors import LeaseLost, Refused
from ..store.store import Store
from .again import repeated
from .sealing import writing
from .turns import Turns

LOAN = "http"  # the host of every loan
TRIES = 10  # of a turn whose number another request about the same loan took

_spawn = msgspec.json.Decoder(Spawn)


class Loans(Turns):
    """The part of the engine that lends single jobs."""

    store: Store
    clock: Callable[[], int]

    def lend(self, info: PoolInfo) -> tuple[int, Claim] | None:
        """(pool, claim) of a new loan; None if there is nothing to be had."""
        kinds: tuple[Kind, ...] = info.kinds
        pool = self.register(info).pool
        want = Want(queues=info.queues, places=dict.fromkeys(kinds, 1), limit=1)
        claims = self.turn(Turn(pool=pool, database_id=self.database_id, number=1, wants=[want])).claims
        if not claims:
            self.leave(pool)
            return None
        (claim,) = claims
        now = self.clock()
        busy = WorkerState(
            info.name, claim.kind, "busy", None, None, now, job_id=claim.id, fence=claim.fence, busy_since=now
        )
        held = [Held(claim.id, claim.fence)]
        self.turn(Turn(pool=pool, database_id=self.database_id, number=2, held=held, workers=[busy]))
        return pool, claim

    def renew(self, job: int, pool: int, fence: int) -> bool:
        """The lease begins anew; whether the job was cancelled meanwhile. LeaseLost if it is somebody else's by now."""
        # Looked at first: a turn that does not list what its pool holds hands that back.
        reply = self._turn_of_loan(pool, held=[Held(job, fence)]) if self._is_on_loan(job, pool, fence) else None
        if reply is None or not self._is_on_loan(job, pool, fence):
            raise _not_yours(job)
        return any(held.id == job for held in reply)

    @repeated
    def stage(self, job: int, pool: int, fence: int, spawned: Sequence[Spawn], after: int | None = None) -> int:
        """These jobs come into being with the run's success. How many there are of that run by now.

        With ``after``, how many there were before, the same request twice counts once; None adds them every time.
        """
        texts = [msgspec.json.encode(spawn).decode() for spawn in spawned]
        with writing(self.store):
            if not self._is_on_loan(job, pool, fence):
                raise _not_yours(job)
            self.store.ask("unstage", job=job, fence=fence - 1)  # of runs that did not succeed
            staged = [row[0] for row in self.store.ask("staged", job=job, fence=fence)]
            first = len(staged) if after is None else after
            if staged[first:] == texts and texts:
                return len(staged)  # the answer to the same request was lost
            if first != len(staged):
                raise Refused(
                    f"after {after}: {len(staged)} jobs of this run were spawned before; the last answer says"
                )
            for number, text in enumerate(texts, first):
                self.store.ask("stage", job=job, fence=fence, no=number, spawn=text)
            failpoint("stage.before_commit")
        return first + len(texts)

    def settle(self, job: int, pool: int, fence: int, outcome: Outcome, **fields: object) -> None:
        """The run is reported and the loan is over. Told twice, it counts once; LeaseLost if it is not ours."""
        report = Report(job, fence, outcome, **fields)  # type: ignore[arg-type]
        if name := self.store.value("is_loan", pool=pool):
            report.worker = name + suffix(name, LOAN)
        if outcome == "success":
            staged = [_spawn.decode(text) for (text,) in self.store.ask("staged", job=job, fence=fence)]
            report.spawned = staged or None
        # Looked at first, as in `renew`: whoever names another pool must not speak for it.
        refused = self._turn_of_loan(pool, reports=[report]) if self._is_on_loan(job, pool, fence) else None
        if (refused is None or refused) and not self._was_reported(job, pool, fence):
            raise _not_yours(job)
        self._forget(job, fence)
        if self.store.value("is_loan", pool=pool) and not self.store.held_by([pool]):
            self.leave(pool)

    def _was_reported(self, job: int, pool: int, fence: int) -> bool:
        """Whether it was our own earlier report that moved the job, though its answer was lost.

        Then the row still has our fence and nobody works on it, or the run has left its story: a failure that was
        tried again since, a cancel.
        """
        row: Row | None = self.store.row(job)
        if row is None:
            return False
        if row.fence == fence and row.state != "processing" and row.attempts > 0:
            return True
        return bool(self.store.value("was_reported", job=job, pool=pool, fence=fence))

    @repeated
    def _forget(self, job: int, fence: int) -> None:
        with self.store.transaction():
            self.store.ask("unstage", job=job, fence=fence)
            failpoint("unstage.before_commit")

    def _last_turn(self, pool: int) -> int | None:
        number: int | None = self.store.value("pool_for_turn", pool=pool)
        return number

    def _is_on_loan(self, job: int, pool: int, fence: int) -> bool:
        row: Row | None = self.store.row(job)
        if row is None or row.pool != pool or fence not in (row.fence, row.fence - 1):
            return False
        return bool(self.store.value("is_loan", pool=pool))

    def _turn_of_loan(
        self, pool: int, *, reports: Sequence[Report] = (), held: Sequence[Held] = ()
    ) -> list[Held] | None:
        """What the turn refused, or with nothing to report what was cancelled; None if the pool is not known."""
        for _ in range(TRIES):
            last = self._last_turn(pool)
            if last is None:
                return None
            number = last + 1
            turn = Turn(pool=pool, database_id=self.database_id, number=number, reports=list(reports), held=list(held))
            try:
                reply = self.turn(turn)
            except Refused:
                if self._last_turn(pool) == number - 1:
                    raise
                continue  # another request about this loan was faster
            if reply.lost:
                return None
            return reply.refused if reports else reply.cancels
        raise Refused(f"pool {pool} is asked about from too many places at once; try again")


def _not_yours(job: int) -> LeaseLost:
    return LeaseLost(f"job {job} is not yours any more: it was given up, or it has ended")
