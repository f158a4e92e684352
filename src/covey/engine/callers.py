"""Jobs that end with whoever asked for them: tied when they are stored, let go when they have ended.

A caller shows that he lives by a beat, as pools do; who watches it, and what counts as gone, is the watcher's business
(pool/reaper.py). Here is only what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from ..core.model import ENDED
from ..core.turn import Caller, Tie
from ..env import failpoint
from ..store.store import Store
from .again import repeated
from .duties import REAP_WAIT_S, STILL_S
from .sealing import writing
from .trees import Trees


class Callers:
    """The part of the engine that knows who waits."""

    store: Store
    clock: Callable[[], int]
    rng: Random

    def _tie(self, jobs: Iterable[int], caller: Caller) -> None:
        """Inside a transaction: these new jobs end with the caller."""
        for job in jobs:
            self.store.ask(
                "tie",
                job=job,
                host=caller.host,
                boot=caller.boot,
                pid=caller.pid,
                ticks=caller.ticks,
                lease_s=caller.lease_s,
            )

    def callers(self) -> list[Tie]:
        return [Tie(*row) for row in self.store.ask("ties")]

    @repeated
    def still_here(self, job: int) -> bool:
        """The caller is alive as of now; False if the job is tied to nobody."""
        with writing(self.store, still_s=STILL_S):
            found = bool(self.store.ask("beat_tie", job=job))
            failpoint("present.before_commit")
        return found

    @repeated
    def let_go(self, job: int) -> None:
        """The job ends with nobody any longer."""
        with writing(self.store):
            self.store.ask("untie", job=job)
            failpoint("untie.before_commit")

    @repeated
    def abandon(self, job: int, beat: int) -> bool:
        """The job and all below it are cancelled, for their caller is gone. False if he has beaten since.

        Of a job that has ended, or is no more, only the tie goes.
        """
        with writing(self.store, wait_s=REAP_WAIT_S, still_s=STILL_S):
            self.store.lock_queues()
            self.store.lock_trees([job])
            row = self.store.row(job)
            cut = self.store.ask("cut_tie", job=job, beat=beat)
            if not cut or row is None or row.state in ENDED:
                return False
            ((host, pid),) = cut
            error = f"the `covey run` that asked for it is gone (pid {pid} on {host})"
            trees = Trees(self.store, self.clock(), self.rng)
            trees.cancel(row, error)
            self.store.event("cancelled", now=trees.now, job_id=job, text=f"was {row.state}; {error}")
            trees.settle()
            self.store.ring("pool")
            self.store.ring("end")
            failpoint("abandon.before_commit")
        return True
