"""Rows in, rows out: every statement Covey knows, over any Dialect. It selects, fences and writes; it never decides.

Lock order, for databases with row locks: the rows of pools by id, then queue rows of serial or limited queues, then
roots by id, then the rest. Every change of a job with a family first locks its root, except the claim, which never
waits. What goes against the order all the same (an uncle's tree, trees that expire) the database notices, and the
transaction is repeated. On SQLite the writer is alone and the locks cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import asdict

from ..core.machine import Transition
from ..core.model import JobRow, Report, Spec
from ..core.options import Defaults
from ..core.turn import LostPool, PoolEvent, PoolInfo, WorkerState
from ..errors import InvalidInput
from .asking import Tuples, json_text
from .families import Families
from .job_rows import JobRecord, Place, job_row, record
from .ready import ReadyJobs
from .turn_state import Instants


class CompletedJob(NamedTuple):
    """A plain success that was written, with all that its family may have to know."""

    id: int
    parent_id: int | None
    child_no: int | None
    lane: int | None
    waited_for: int
    cache_key: str | None


class Store(Families, ReadyJobs):
    def plan(self) -> None:
        """Short statements are planned once from now on, where the database can do that. The tables must be there."""

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        """From now on ``work`` is done in the middle of anything, by the same thread, while a server works.

        Again and again until the answer is there: it says after how many seconds, None if it is done. It must ask
        nothing of the database. False if there is no server that one could wait for.
        """
        return False

    def check_lendable(self) -> None:
        """A caller's connection can lead to this queue."""
        where = self.dialect.url
        raise InvalidInput(f"a connection as tx= needs a queue on PostgreSQL, not {where}; use app.transaction()")

    def borrow(self, tx: object) -> Store:
        """The same queue inside the transaction that is open on a caller's connection."""
        self.check_lendable()
        return self

    # ── enqueue ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def insert(
        self, ids: Sequence[int], specs: Sequence[Spec], places: Iterable[Place], now: int, defaults: Defaults
    ) -> None:
        """New jobs, each at its place. One after the other, never as a list of rows: there may be 100,000."""
        self.many(
            "insert_job", (job_row(spec, place, now, defaults) for spec, place in zip(specs, places, strict=True))
        )
        self.many(
            "insert_payload", ((id, spec.args) for id, spec in zip(ids, specs, strict=True) if spec.args is not None)
        )

    def insert_express(self, spec: Spec, now: int, defaults: Defaults) -> int | None:
        """A new job, in a transaction of its own, if nothing must be looked up; None if it must go the usual way."""
        return None

    def ring_for(self, fresh: Iterable[tuple[str, str, int]]) -> None:
        """New jobs, each a (queue, kind, priority), wake pools."""
        self.ring("pool")

    def insert_copy(self, of: int, now: int) -> int:
        (id,) = self.dialect.take_ids("jobs", 1)
        self.ask("insert_copy", id=id, of=of, now=now)
        self.ask("copy_payload", id=id, of=of)
        self.open([id], now)
        return id

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def row(self, id: int) -> JobRow | None:
        found = self.ask("row", id=id)
        return JobRow(*found[0]) if found else None

    def rows(self, ids: Sequence[int]) -> dict[int, JobRow]:
        return {found[0]: JobRow(*found) for found in self.ask("rows", ids=json_text(ids))}

    def change(self, row: JobRow, change: Transition, now: int, report: Report | None = None) -> None:
        """Applies a decision to the row it was made for. The fence and the state guard against deciding twice."""
        self.ask(
            "change",
            id=row.id,
            was=row.state,
            expected=row.fence,
            now=now,
            state=change.state,
            fence=change.fence,
            attempts=change.attempts,
            fresh_attempts=change.fresh_attempts,
            interruptions=change.interruptions,
            phase=change.phase,
            run_at=change.run_at,
            keeps_pool=change.keeps_pool,
            error=change.error,
            keeps_error=change.keeps_error,
            blocked_by=change.blocked_by,
            finished_at=now if change.ended else None,
            exit_code=report.exit_code if report else None,
            worker=report.worker if report else None,
            started_at=report.started_at if report else None,
            info=report.info if report else None,
        )

    def complete(self, pool: int, reports: Sequence[Report], now: int) -> tuple[set[int], list[CompletedJob]]:
        """The plain successes of a turn, in one statement.

        The ids of those that were still the reporter's to end; and of these the ones whose family or cache must know.
        """
        rows = self.ask("complete", pool=pool, done=done_text(reports), now=now, flat=False)
        kin = [CompletedJob(*row) for row in rows if row[1] is not None or row[3] is not None or row[4] or row[5]]
        return {row[0] for row in rows}, kin

    def set_results(self, reports: Sequence[Report]) -> None:
        self.many("set_result", ({"id": r.id, "body": r.result} for r in reports))

    def add_attempt(self, row: JobRow, report: Report, outcome: str, now: int) -> None:
        output = report.output
        self.ask(
            "insert_attempt",
            job_id=row.id,
            fence=report.fence,
            number=row.attempts,
            phase=row.phase,
            outcome=outcome,
            worker=report.worker,
            pool=row.pool,
            started_at=report.started_at,
            finished_at=report.finished_at or now,
            exit_code=report.exit_code,
            error=report.error,
            detail=report.detail,
            stdout=output.stdout if output else None,
            stderr=output.stderr if output else None,
            stdout_dropped=output.stdout_dropped if output else 0,
            stderr_dropped=output.stderr_dropped if output else 0,
        )

    def event(
        self,
        kind: str,
        *,
        now: int,
        text: str | None = None,
        job_id: int | None = None,
        pool: int | None = None,
        worker: str | None = None,
    ) -> None:
        self.ask("add_event", at=now, kind=kind, job_id=job_id, pool=pool, worker=worker, text=text)

    def records(self, where: Sequence[str], limit: int, order: str = "j.id desc", **params: Any) -> list[JobRecord]:
        """Jobs under the named conditions, newest first."""
        sql = self._sql["view"]
        if where:
            sql += "\nwhere " + " and ".join(self._sql[name] for name in where)
        rows = self.dialect.query(f"{sql}\norder by {order} limit :limit", params | {"limit": limit})
        return list(map(record, rows))

    # ── pools ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def instants(self) -> Instants:
        return Instants(*self.ask("instants")[0])

    def held_by(self, pools: Sequence[int]) -> Tuples:
        """(pool, id, fence of the claim) of everything that these pools hold."""
        if len(pools) == 1:
            return [(pools[0], *row) for row in self.ask("held_by", pool=pools[0])]
        return self.ask("held_by_pools", pools=json_text(pools))

    def add_pool(self, info: PoolInfo, now: int) -> int:
        (id,) = self.dialect.take_ids("pools", 1)
        params = asdict(info) | {
            "id": id,
            "now": now,
            "queues": None if info.queues is None else json_text(info.queues),
            "kinds": json_text(info.kinds),
            "types": None if info.types is None else json_text(info.types),
        }
        self.ask("insert_pool", **params)
        return id

    def pools(self) -> list[LostPool]:
        return [LostPool(*row) for row in self.ask("pools")]

    def add_events(self, pool: int, events: Sequence[PoolEvent]) -> None:
        self.many("add_event", (asdict(event) | {"pool": pool, "job_id": None} for event in events))

    def put_workers(self, pool: int, workers: Sequence[WorkerState], given_up: Mapping[str, str] | None) -> None:
        self.ask("set_given_up", pool=pool, given_up=json_text(given_up) if given_up else None)
        self.ask("prune_workers", pool=pool, names=json_text([worker.name for worker in workers]))
        self.many("put_worker", (asdict(worker) | {"pool": pool} for worker in workers))


def done_text(reports: Sequence[Report]) -> str:
    """As `complete` reads them."""
    return json_text([(r.id, r.fence, r.worker, r.started_at, r.exit_code, r.info) for r in reports])
