"""Jobs on loan: one job for one worker that speaks plain HTTP. Each loan is a pool of its own, with its own lease."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from ..core.label import suffix
from ..core.machine import SECOND
from ..core.model import Claim, JobRow, Kind, Output, Report, RunOutcome, Spawn
from ..core.tree import time_left_s
from ..core.turn import Capacity, Held, PoolInfo, Turn, WorkerState
from ..env import failpoint
from ..errors import LeaseLost, Refused
from ..store.store import Store
from .again import repeated
from .sealing import writing
from .turn import Turns

LOAN = "http"  # the host of every loan
TRIES = 10  # of a turn whose number another request about the same loan took
LATE_S = 1.0  # a success counts although it arrives so long after the time-out: it was under way
GRACE_S = 5.0  # after the time-out, for a borrower to end the run and say so; then the loan is ended for him

_spawn = msgspec.json.Decoder(Spawn)


class Loan(Struct, frozen=True):
    """A job that somebody has borrowed, as it stands."""

    job: int
    pool: int
    fence: int  # of the claim: what its borrower knows it by
    is_cancelled: bool
    timeout_s: float | None
    over_s: float  # since its time was over; below 0: there is time left

    @property
    def is_overdue(self) -> bool:
        return self.over_s > GRACE_S and not self.is_cancelled

    @property
    def timed_out(self) -> str | None:
        """What is said of a run that took too long, in the words of a pool; None while it may run."""
        return f"timed out after {self.timeout_s:g} s" if self.over_s > 0 and not self.is_cancelled else None


class Loans(Turns):
    """The part of the engine that lends single jobs."""

    store: Store
    clock: Callable[[], int]

    def lend(self, info: PoolInfo) -> tuple[int, Claim] | None:
        """(pool, claim) of a new loan; None if there is nothing to be had."""
        kinds: tuple[Kind, ...] = info.kinds
        pool = self.register(info).pool
        want = Capacity(queues=info.queues, places=dict.fromkeys(kinds, 1), limit=1)
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

    def renew(self, job: int, pool: int, fence: int) -> str | None:
        """The lease begins anew; why the run must be stopped, if it must. LeaseLost if it is somebody else's by now."""
        # Looked at first: a turn that does not list what its pool holds hands that back.
        if self._loan(job, pool, fence) is None or self._turn_of_loan(pool, held=[Held(job, fence)]) is None:
            raise _not_yours(job)
        loan = self._loan(job, pool, fence)
        if loan is None:
            raise _not_yours(job)
        return "cancelled" if loan.is_cancelled else loan.timed_out

    def release(self, job: int, pool: int, fence: int) -> None:
        """The job is handed back at no cost, and the loan is over. LeaseLost if it is not ours."""
        if self._loan(job, pool, fence) is None:
            raise _not_yours(job)
        self.leave(pool)

    def overdue_loans(self) -> list[Loan]:
        """Runs whose time was over long ago, and whose borrowers did not say that they have ended."""
        found = [self._loan_of(*row) for row in self.store.ask("timed_loans")]
        return [loan for loan in found if loan.is_overdue]

    def time_out(self, loan: Loan, output: Output | None = None) -> None:
        """The run has failed for its time-out, whatever its borrower says later; unless he was faster."""
        with contextlib.suppress(LeaseLost):
            self.settle(loan.job, loan.pool, loan.fence, "worker_lost", error=loan.timed_out, output=output)

    @repeated
    def stage(self, job: int, pool: int, fence: int, spawned: Sequence[Spawn], after: int | None = None) -> int:
        """These jobs come into being with the run's success. How many there are of that run by now.

        With ``after``, how many there were before, the same request twice counts once; None adds them every time.
        """
        texts = [msgspec.json.encode(spawn).decode() for spawn in spawned]
        with writing(self.store):
            if self._loan(job, pool, fence) is None:
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

    def settle(self, job: int, pool: int, fence: int, outcome: RunOutcome, **fields: object) -> None:
        """The run is reported and the loan is over. Told twice, it counts once; LeaseLost if it is not ours."""
        report = Report(job, fence, outcome, **fields)  # type: ignore[arg-type]
        if name := self.store.value("is_loan", pool=pool):
            report.worker = name + suffix(name, LOAN)
        if outcome == "success":
            staged = [_spawn.decode(text) for (text,) in self.store.ask("staged", job=job, fence=fence)]
            report.spawned = staged or None
        # Looked at first, as in `renew`: whoever names another pool must not speak for it.
        loan = self._loan(job, pool, fence)
        late = loan.timed_out if loan is not None and _explain(report, loan) else None
        refused = self._turn_of_loan(pool, reports=[report]) if loan is not None else None
        if (refused is None or refused) and not self._was_reported(job, pool, fence):
            raise _not_yours(job)
        self._forget(job, fence)
        if self.store.value("is_loan", pool=pool) and not self.store.held_by([pool]):
            self.leave(pool)
        if late:
            raise LeaseLost(f"job {job} {late}; that it ended well came too late")

    def _was_reported(self, job: int, pool: int, fence: int) -> bool:
        """Whether it was our own earlier report that moved the job, though its answer was lost.

        Then the row still has our fence and nobody works on it, or the run has left its story: a failure that was
        tried again since, a cancel. Of a run that was ended for its borrower the story says so: "worker_lost" is what
        no borrower can report.
        """
        row: JobRow | None = self.store.row(job)
        if row is None:
            return False
        for outcome, whose in self.store.ask("outcome_of_run", job=job, fence=fence):
            if outcome == "worker_lost" or whose == pool:
                return bool(outcome != "worker_lost")
        return row.fence == fence and row.state not in ("processing", "cancelled") and row.attempts > 0

    @repeated
    def _forget(self, job: int, fence: int) -> None:
        with self.store.transaction():
            self.store.ask("unstage", job=job, fence=fence)
            failpoint("unstage.before_commit")

    def _last_turn(self, pool: int) -> int | None:
        number: int | None = self.store.value("pool_for_turn", pool=pool)
        return number

    def _loan(self, job: int, pool: int, fence: int) -> Loan | None:
        """The loan of that job to that pool, if its fence is that of the claim."""
        for row in self.store.ask("loan", job=job, pool=pool):
            loan = self._loan_of(*row)
            return loan if loan.fence == fence else None
        return None

    def _loan_of(
        self,
        job: int,
        pool: int,
        fence: int,
        state: str,
        timeout_s: float | None,
        deadline_at: int | None,
        claimed_at: int,
    ) -> Loan:
        # A cancel raises the fence of a running job by one; its borrower knows it by the fence of the claim.
        is_cancelled = state == "cancelled"
        allowed_s = time_left_s(timeout_s, deadline_at, claimed_at)
        over_s = float("-inf") if allowed_s is None else (self.clock() - claimed_at) / SECOND - allowed_s
        return Loan(job, pool, fence - is_cancelled, is_cancelled, allowed_s, over_s)

    def _turn_of_loan(
        self, pool: int, *, reports: Sequence[Report] = (), held: Sequence[Held] = ()
    ) -> list[Held] | None:
        """What the turn refused; None if the pool is not known."""
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
            return reply.refused
        raise Refused(f"pool {pool} is asked about from too many places at once; try again")


def _explain(report: Report, loan: Loan) -> bool:
    """A run that took too long is reported as that, as pools do; whether that makes a failure of a success."""
    if loan.timed_out is None:
        return False
    if report.outcome == "failure":
        report.error, report.detail = loan.timed_out, None
    if report.outcome != "success" or loan.over_s <= LATE_S:
        return False
    report.outcome, report.error, report.result, report.spawned = "worker_lost", loan.timed_out, None, None
    return True


def _not_yours(job: int) -> LeaseLost:
    return LeaseLost(f"job {job} is not yours any more: it was given up, or it has ended")
