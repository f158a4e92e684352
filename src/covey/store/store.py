"""Rows in, rows out: every statement Covey knows, over any Dialect. It selects, fences and writes; it never decides.

Lock order, for databases with row locks: the rows of pools by id, then queue rows of serial or limited queues, then
roots by id, then the rest. Every change of a job with a family first locks its root, except the claim, which never
waits. What goes against the order all the same (an uncle's tree, trees that expire) the database notices, and the
transaction is repeated. On SQLite the writer is alone and the locks cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from msgspec.structs import asdict

from ..core.machine import Transition
from ..core.model import JobRow, Report, Spec
from ..core.turn import LostPool, PoolEvent, PoolInfo, WorkerState
from . import statements
from .dialect import STILL_S, Dialect, Listener
from .families import Families, json_text
from .postgres.store import done_text
from .ready import LOCKED, Found, Tuples, Waiting


class Done(NamedTuple):
    """A plain success that was written, with all that its family may have to know."""

    id: int
    parent_id: int | None
    child_no: int | None
    lane: int | None
    waited_for: int


class Store(Families, Waiting):
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._sql = dict(statements.load(dialect.name, dialect.prefix))
        if dialect.row_locks:
            self._sql |= {f"{name}_locked": f"{self._sql[name]}\nfor no key update skip locked" for name in LOCKED}
        self._calls = {}
        Waiting.__init__(self)

    def plan(self) -> None:
        """Short statements are planned once from now on, where the database can do that. The tables must be there."""
        self._calls = self.dialect.planned(self._sql)

    # ── plumbing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def transaction(
        self, *, marked: bool = True, alone: bool = False, still_s: float = STILL_S
    ) -> AbstractContextManager[None]:
        return self.dialect.transaction(marked=marked, alone=alone, still_s=still_s)

    def snapshot(self) -> AbstractContextManager[None]:
        return self.dialect.snapshot()

    def ask(self, statement: str, /, **params: Any) -> Tuples:
        """The rows that the named statement answers."""
        return self.dialect.query(self._text(statement), params)

    def _text(self, statement: str) -> str:
        return self._calls.get(statement) or self._sql[statement]

    def value(self, statement: str, /, **params: Any) -> Any:
        """The first column of the first row, or None."""
        rows = self.ask(statement, **params)
        return rows[0][0] if rows else None

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | tuple[Any, ...]]) -> None:
        self.dialect.execute_many(self._sql[name], rows)

    def ring(self, who: str) -> None:
        self.dialect.ring(who)

    def ring_for(self, fresh: Iterable[tuple[str, str, int]]) -> None:
        """New jobs, each a (queue, kind, priority), wake pools; over a network only those that may be asleep."""
        if not self.dialect.row_locks:
            self.dialect.ring("pool")
            return
        for (queue, kind, priority), count in Counter(fresh).items():
            self.dialect.after_commit(*self._ring(queue, kind, priority, count))

    def _ring(self, queue: str, kind: str, priority: int, count: int) -> tuple[str, dict[str, Any]]:
        where = {"queue": queue, "kind": kind, "priority": priority}
        return self._text("ring_unless_backlog"), {"channel": self.dialect.channel, "fresh": count + 10, **where}

    def listen(self, who: str) -> Listener:
        return self.dialect.listen(who)

    def raw(self, sql: str, **params: Any) -> Tuples:
        """A statement of the caller's own, {jobs} and the like written out: for checks and tests."""
        return self.dialect.query(
            statements.written_out(sql, statements.MACROS[self.dialect.name], self.dialect.prefix), params
        )

    # ── locks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def lock_queues(self) -> None:
        self._lock("lock_queues")

    def lock_trees(self, ids: Sequence[int]) -> None:
        """The roots of these jobs."""
        if ids:
            self._lock("lock_trees", ids=json_text(ids))

    def lock_families(self, ids: Sequence[int]) -> None:
        """The roots of those among these jobs that are not alone in the world."""
        if ids:
            self._lock("lock_families", ids=json_text(ids))

    def _lock(self, statement: str, **params: Any) -> None:
        """Before whatever is asked next."""
        if self.dialect.row_locks:
            self.dialect.also(self._text(statement), params)

    # ── enqueue ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def insert(self, specs: Sequence[tuple[Spec, int | None]], now: int) -> list[int]:
        """New jobs, each with the instant it may start (None: at once); their ids in order."""
        ids = self.dialect.take_ids("jobs", len(specs))
        self.many("insert_job", (_job_values(id, spec, at, now) for id, (spec, at) in zip(ids, specs, strict=True)))
        payloads = [(id, spec.args) for id, (spec, _) in zip(ids, specs, strict=True) if spec.args is not None]
        if payloads:
            self.many("insert_payload", payloads)
        return list(ids)

    def insert_express(self, spec: Spec, now: int) -> int | None:
        """A new job without key, delay or tree, in a transaction of its own; None if it must go the usual way."""
        if not self.dialect.row_locks:
            return None
        values = dict(zip(_JOB_COLUMNS, _job_values(0, spec, None, now), strict=True)) | {"args": spec.args}
        return self.dialect.express(
            self._text("insert_express"), values, self._ring(spec.queue, spec.kind, spec.priority, 1)
        )

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
            finished_at=now if change.ended else None,
            exit_code=report.exit_code if report else None,
            worker=report.worker if report else None,
            started_at=report.started_at if report else None,
            info=report.info if report else None,
        )

    def complete(self, pool: int, reports: Sequence[Report], now: int) -> tuple[set[int], list[Done]]:
        """The plain successes of a turn, in one statement.

        The ids of those that were still the reporter's to end; and of these the ones whose family must know.
        """
        rows = self.ask("complete", pool=pool, done=done_text(reports), now=now, flat=False)
        kin = [Done(*row) for row in rows if row[1] is not None or row[3] is not None or row[4]]
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

    def views(self, where: Sequence[str], limit: int, order: str = "j.id desc", **params: Any) -> Tuples:
        """Rows of the view under the named conditions, newest first."""
        sql = self._sql["view"]
        if where:
            sql += "\nwhere " + " and ".join(self._sql[name] for name in where)
        return self.dialect.query(f"{sql}\norder by {order} limit :limit", params | {"limit": limit})

    # ── pools ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def look_at_pools(self, pools: Sequence[int]) -> dict[int, Found]:
        """Of those that are known: what `pool_for_turn` says of each."""
        if len(pools) == 1:
            return dict(zip(pools, self.ask("pool_for_turn", pool=pools[0]), strict=False))
        return {row[0]: row[1:] for row in self.ask("pools_for_turns", pools=json_text(pools))}

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


_JOB_COLUMNS = (
    *("id", "queue", "kind", "task", "state", "priority", "max_attempts", "run_at", "now", "timeout_s"),
    *("backoff_base", "backoff_cap_s", "jitter", "key", "unique_key", "keep_background", "batch", "labels"),
    *("created_by", "cwd"),
)


def _job_values(id: int, spec: Spec, run_at: int | None, now: int) -> tuple[Any, ...]:
    """In the order in which `insert_job` first names its parameters: bound by place, which is a third cheaper."""
    policy = spec.policy
    return (
        id,
        spec.queue,
        spec.kind,
        spec.task,
        "pending" if run_at is None else "scheduled",
        spec.priority,
        policy.max_attempts,
        run_at,
        now,
        policy.timeout_s,
        policy.backoff_base,
        policy.backoff_cap_s,
        int(policy.jitter),
        spec.key,
        spec.unique_key,
        int(spec.keep_background),
        spec.batch,
        None if spec.labels is None else json_text(spec.labels),
        spec.created_by,
        spec.cwd,
    )
