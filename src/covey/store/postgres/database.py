"""PostgreSQL through psycopg: many writers beside each other, row locks instead of a gate, the server's clock.

Nothing here outlives a transaction on the server, so a transaction-pooling proxy may stand in between: no session
settings, no prepared statements, no temporary tables, no search path. Only listening needs a session (`listening.py`).
Parameters are bound on this side: then several statements travel in one message, and nothing needs to be prepared.
Inside a transaction a statement that answers nothing waits for the next one that does, or for the COMMIT.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg

from ...env import failpoint
from ...errors import StoreError, Undone, Unknown
from ..dialect import STILL_S, Listener, Params
from ..statements import MACROS, written_out
from ..time_limit import Limit, limited, with_limit
from . import functions as planned
from .bell import Ears
from .binding import Insert, answers, insert_of, placeholders, written
from .explained import explained, first_line
from .session import Session
from .url import Target

T = TypeVar("T")

PATIENCE_S = 5.0  # how long a lost connection is sought again before the caller hears of it
RESOLVE_S = 30.0  # how long the fate of a commit is asked for
RECEIPTS_LAST_S = 600.0  # far longer than anybody asks
CLOCK_LASTS_S = 30.0
PLANNING_WAIT_S = 1.0
FEW = 8  # rows that are cheaper as one statement than as a COPY
BATCH = 500  # rows of one statement
MOST_HINTS = 1000  # one for each queue, kind and priority

# Statistics lag behind a queue by nature: empty now, a million rows in a minute. The indexes are always right, and read
# in order they skip what is known to be dead; a bitmap of them would not.
HINT = "set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
RING = "select pg_notify(:channel, :who)"


class Postgres:
    name = "postgres"
    row_locks = True
    limit: Limit | None = None
    within = limited

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        """Connected, or StoreError in one line."""
        target = Target.of(url)
        self.url, self.side, self.schema = target.shown, target.side(), target.schema
        self.prefix = f'"{target.schema}".'
        self.channel = target.channel
        self.advisory_lock = target.lock
        self._target = target
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._db: Session | None = None
        self._meanwhile: Callable[[], float | None] | None = None
        self._inside = False
        self._unfit = False  # the session is no good for writing: after a failover another host of the URL may be
        self._begun = False  # whether the server knows of the transaction
        self._unsent: list[str] = []  # what travels with the next message
        self._hints: list[str] = []  # what travels behind the COMMIT
        self._brief = False  # who waits for a lock would rather hear of it soon
        self._offset = 0.0
        self._sampled_at = -CLOCK_LASTS_S
        self._durable = True
        self._bound_hints: dict[tuple[Any, ...], str] = {}
        self._ears = Ears(target)
        self.statements = 0  # sent so far, for benchmarks
        self._connect(patience_s=0.0)

    # ── the Dialect ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def transaction(
        self, *, marked: bool = True, alone: bool = False, wait_s: float | None = None, still_s: float = STILL_S
    ) -> Iterator[None]:
        with self._lock:
            self._refuse_other_process()
            self._begin(self._begin_text(alone, self._timeout_s if wait_s is None else wait_s, still_s))
            self._brief = wait_s is not None
            try:
                failpoint("store.after_begin")
                yield
                failpoint("store.before_commit")
                self._commit(marked)
            except BaseException:
                self._rollback()
                raise
            finally:
                self._inside, self._brief = False, False
        failpoint("store.after_commit")

    def express(self, sql: str, params: Params, hint: tuple[str, Params]) -> int | None:
        with self._lock:
            self._refuse_other_process()
            self._connect(PATIENCE_S)
            token = _token_of(self.now(), os.urandom(10))
            text, place = self._whole(sql, {**params, "token": token}, [self._hint(*hint)])
            try:
                failpoint("express.before_commit")
                failpoint("store.before_commit")
                found = self._run_all(text, None)[place]
                failpoint("store.after_commit")
                return found[0][0] if found else None
            except StoreError:
                if self._is_lost():
                    if not self._has_committed(token):
                        raise
                elif self._is_in_transaction():
                    self._run("rollback", None)
                    raise
            asked = f"select job from {self.prefix}receipts where token = '{token}'"
            kept = self._persistently(lambda: self._run(asked, None))
            return int(kept[0][0]) if kept else None

    def at_once(self, sql: str, params: Params, *, rings: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            self._refuse_other_process()
            self._connect(PATIENCE_S)
            told = [self._hint(RING, {"channel": self.channel, "who": who}) for who in rings]
            text, place = self._whole(sql, params, told)
            try:
                failpoint("store.before_commit")
                found = self._run_all(text, None)[place]
            except StoreError as error:
                if self._is_lost():
                    raise Unknown(f"{self.url}: the connection was lost during COMMIT ({error})") from None
                if self._is_in_transaction():
                    self._run("rollback", None)
                elif rings:  # it was a ring that failed, behind the COMMIT
                    raise Unknown(f"{self.url}: committed, but its answer is lost ({error})") from None
                raise
        failpoint("store.after_commit")
        return found

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._lock:
            self._refuse_other_process()
            self._begin("begin isolation level repeatable read, read only")
            try:
                yield
            finally:
                self._rollback()
                self._inside = False

    def query(self, sql: str, params: Params) -> list[tuple[Any, ...]]:
        text = placeholders(sql)
        with self._lock:
            self._refuse_other_process()
            if self._inside and not answers(sql):
                self._unsent.append(self._bound(text, params))
                return []
            if self._inside and self.limit:
                self._unsent.append(f"select {self.limit.setting()}")
            if self._inside:
                return self._run(text, params)
            return self._persistently(lambda: self._run(f"select {with_limit(HINT, self.limit)}; {text}", params))

    def queries(self, *asked: tuple[str, Params]) -> list[list[tuple[Any, ...]]]:
        """In one message; inside a transaction."""
        texts = [self._bound(placeholders(sql), params) for sql, params in asked]
        return self._run_all("; ".join(texts), None)[-len(asked) :]

    def also(self, sql: str, params: Params) -> None:
        self._unsent.append(self._bound(placeholders(sql), params))

    def execute_many(self, sql: str, rows: Iterable[Params | tuple[Any, ...]]) -> None:
        rows = iter(rows)
        first = list(islice(rows, FEW + 1))
        if not first:
            return
        insert = insert_of(sql)
        if insert is None:
            text = placeholders(sql)
            self._unsent += [self._bound(text, row) for row in chain(first, rows)]
        elif len(first) > FEW and not insert.tail:
            self._copy(insert, chain(first, rows))
        else:
            rows = chain(first, rows)
            while batch := list(islice(rows, BATCH)):
                self._unsent.append(insert.text(psycopg.ClientCursor(self._session()), batch))

    def script(self, sql: str) -> None:
        self._run(written_out(sql.replace("{schema}", self.schema), MACROS[self.name], self.prefix), None)

    def tables(self) -> set[str]:
        found = "select tablename from pg_catalog.pg_tables where schemaname = :schema"
        return {row[0] for row in self.query(found, {"schema": self.schema})}

    def planned(self, statements: Mapping[str, str]) -> dict[str, str]:
        wanted = planned.calls(statements, self.prefix)
        known = "select proname from pg_proc p join pg_namespace n on n.oid = pronamespace where nspname = :schema"
        there = {row[0] for row in self.query(known, {"schema": self.schema})}
        missing = [made for function, made, _ in wanted.values() if function not in there]
        try:
            if missing:
                # Soon or not at all: whoever waits to be alone makes everybody else wait.
                with self.transaction(alone=True, marked=False, wait_s=PLANNING_WAIT_S):
                    self._run("; ".join(missing), None)
                    failpoint("plan.before_commit")
        except StoreError:
            return {}  # may not create functions, or a standby: then the plain statements
        return {name: call for name, (_, _, call) in wanted.items()}

    def take_ids(self, table: str, count: int) -> Sequence[int]:
        sequence = f"'{self.prefix}{table}_id_seq'"
        return [row[0] for row in self.query(f"select nextval({sequence}) from generate_series(1, {count})", {})]

    def now(self) -> int:
        """The server's clock, as measured at most half a minute ago."""
        with self._lock:
            if time.monotonic() - self._sampled_at > CLOCK_LASTS_S and not self._inside:
                self._persistently(self._sample_clock)
        return int((time.monotonic() + self._offset) * 1e6)

    def tidy(self) -> None:
        oldest = _token_of(self.now() - int(RECEIPTS_LAST_S * 1e6), bytes(10))
        self.query(f"delete from {self.prefix}receipts where token < :oldest", {"oldest": oldest})

    def set_durability(self, durability: str) -> None:
        self._durable = durability == "full"

    def ring(self, who: str) -> None:
        """In a transaction of its own: inside the writer's it would make all commits wait for each other."""
        told = {"channel": self.channel, "who": who}
        if self._inside:
            self.after_commit(RING, told)
            return
        with contextlib.suppress(StoreError):  # whoever is not rung looks by itself
            self.query(RING, told)

    def after_commit(self, sql: str, params: Params) -> None:
        hint = self._hint(sql, params)
        if hint not in self._hints:
            self._hints.append(hint)

    def listen(self, who: str) -> Listener:
        self._refuse_other_process()
        return self._ears.listen(who)

    def while_waiting(self, work: Callable[[], float | None]) -> bool:
        with self._lock:
            self._meanwhile = work
            if self._db is not None:
                self._db.meanwhile = work
        return True

    def close(self) -> None:
        """Nothing is open. In a forked child the parent's connection is left alone."""
        if self._pid == os.getpid():
            self._ears.close()
            with self._lock:
                self._drop()

    # ── maintenance ─────────────────────────────────────────────────────────────────────────────────────────────────

    def problems(self) -> list[str]:
        """Indexes that cannot be used, tables that are missing; the server guards the rest by itself."""
        broken = self.query(
            "select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid "
            "join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = :schema and not (i.indisvalid and i.indisready)",
            {"schema": self.schema},
        )
        return [f"the index {row[0]} is not valid; run `reindex index {self.prefix}{row[0]}`" for row in broken]

    def size(self) -> int:
        """Bytes of all tables with their indexes."""
        sizes = [f"pg_total_relation_size('{self.prefix}{table}')" for table in self.tables()]
        return int(self.query(f"select {' + '.join(sizes)}", {})[0][0])

    def vacuum(self) -> None:
        for table in sorted(self.tables()):
            with self._lock:  # in a message of its own: several statements in one are a transaction
                self._persistently(partial(self._run, f"vacuum (analyze) {self.prefix}{table}", None))

    # ── transactions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_text(self, alone: bool, wait_s: float, still_s: float = STILL_S) -> str:
        """Every writer holds the queue's lock together with the others, unless it must be alone."""
        lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
        settings = [
            HINT,
            f"set_config('lock_timeout', '{int(wait_s * 1000)}', true)",
            # A writer that is frozen (SIGSTOP, a lost host) must not hold its locks for ever.
            f"set_config('idle_in_transaction_session_timeout', '{int(still_s * 1000)}', true)",
        ]
        commit = planned.SYNCHRONOUS if self._durable else "'off'"
        settings.append(f"set_config('synchronous_commit', {commit}, true)")
        return f"begin; select {', '.join(settings)}, {lock}({self._target.lock})"

    def _whole(self, sql: str, params: Params, hints: Sequence[str]) -> tuple[str, int]:
        """A transaction of this statement in one message, with hints behind it; at which place its answer comes."""
        terms = {"patience": str(int(self._timeout_s * 1000)), "durable": self._durable, "lock": self._target.lock}
        asked = self._bound(placeholders(sql), {**params, **terms})
        if ":patience" not in sql:  # a function does by itself what else a transaction begins with
            return "; ".join([self._begin_text(False, self._timeout_s), asked, "commit", *hints]), 2
        return ("; ".join(["begin", asked, "commit", *hints]), 1) if hints else (asked, 0)

    def _hint(self, sql: str, params: Params) -> str:
        """Bound once: they are the same again and again, and a caller waits meanwhile."""
        key = (sql, *params.values())
        if key not in self._bound_hints:
            if len(self._bound_hints) >= MOST_HINTS:
                self._bound_hints.clear()
            self._bound_hints[key] = self._bound(placeholders(sql), params)
        return self._bound_hints[key]

    def _begin(self, text: str) -> None:
        if self._inside:
            raise StoreError("a transaction is open already in this thread")
        self._connect(PATIENCE_S)
        self._inside, self._begun, self._unsent, self._hints = True, False, [text], []

    def _commit(self, marked: bool) -> None:
        if not self._begun and len(self._unsent) == 1:
            return  # nothing was said
        token = _token_of(self.now(), os.urandom(10)) if marked else None
        receipt = f"insert into {self.prefix}receipts (token) values ('{token}'); " if token else ""
        try:
            self._run("; ".join([f"{receipt}commit", *self._hints]), None)
        except StoreError as error:
            if self._is_lost():
                if token is None:
                    raise Unknown(f"{self.url}: the connection was lost during COMMIT ({error})") from None
                if not self._has_committed(token):
                    raise
            elif self._is_in_transaction():
                raise
            # else it was a hint that failed, behind the COMMIT

    def _is_in_transaction(self) -> bool:
        """Whether the server has still to be told that it is over."""
        return self._session().info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def _has_committed(self, token: str) -> bool:
        """Whether the transaction with that receipt was committed. If not, it never will be.

        We write the receipt ourselves, as void: that waits for a commit that is still under way, and makes one that
        has yet to arrive fail.
        """
        void = (
            f"insert into {self.prefix}receipts (token, void) values ('{token}', true) on conflict do nothing; "
            f"select void from {self.prefix}receipts where token = '{token}'"
        )
        deadline = time.monotonic() + RESOLVE_S
        self._inside, self._unsent = False, []
        while True:
            try:
                self._connect(PATIENCE_S)
                ((is_void,),) = self._run(void, None)
                return not is_void
            except StoreError as error:
                if time.monotonic() > deadline:
                    why = f"the connection was lost during COMMIT, and the server does not answer since ({error})"
                    raise Unknown(f"{self.url}: {why}; look before you repeat it") from None
                time.sleep(0.1)

    def _rollback(self) -> None:
        self._unsent = []
        if not self._begun or self._is_lost():
            return
        try:
            self._run("rollback", None)
        except StoreError:
            self._drop()

    # ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, text: str, params: Params | None) -> list[tuple[Any, ...]]:
        """The rows that the last of these statements answers."""
        return self._run_all(text, params)[-1]

    def _run_all(self, text: str, params: Params | None) -> list[list[tuple[Any, ...]]]:
        """The rows of each statement."""
        db = self._session()
        text = self._bound(text, params)
        if self._unsent:
            self.statements += len(self._unsent)
            text = "; ".join([*self._unsent, text])
            self._begun, self._unsent = self._inside, []
        self.statements += 1
        try:
            cursor = db.cursor()
            cursor.execute(text.encode())
            found = [cursor.fetchall() if cursor.description is not None else []]
            while cursor.nextset():
                found.append(cursor.fetchall() if cursor.description is not None else [])
            return found
        except psycopg.Error as error:
            raise self._explained(error) from error

    def _bound(self, text: str, params: Params | tuple[Any, ...] | None) -> str:
        if params is None:
            return text
        return written(text, params) or psycopg.ClientCursor(self._session()).mogrify(text.encode(), params)

    def _copy(self, insert: Insert, rows: Iterable[Any]) -> None:
        if self._unsent:
            self._run("select 1", None)
        self.statements += 1
        pick = None
        try:
            with self._session().cursor().copy(insert.copy) as copy:
                for row in rows:
                    pick = pick or insert.pick(row)
                    copy.write_row(pick(row))
        except psycopg.Error as error:
            raise self._explained(error) from error

    def _persistently(self, read: Callable[[], T]) -> T:
        """A read that finds its connection lost is asked again on a new one."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._connect(PATIENCE_S)
            try:
                return read()
            except Undone:
                if not self._is_lost() or time.monotonic() > deadline:
                    raise

    def _sample_clock(self) -> None:
        sent = time.monotonic()
        ((micros,),) = self._run("select (extract(epoch from clock_timestamp()) * 1000000)::bigint", None)
        self._sampled_at = time.monotonic()
        self._offset = micros / 1e6 - (sent + self._sampled_at) / 2

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────

    def _session(self) -> Session:
        if self._db is None or self._db.closed:
            raise Undone(f"{self.url}: the connection is lost")
        return self._db

    def _connect(self, patience_s: float) -> None:
        if self._db is not None and not self._db.closed and not self._unfit:
            return
        self._drop()
        deadline = time.monotonic() + patience_s
        pause_s = 0.02
        while True:
            try:
                self._db = Session.connect(
                    self._target.conninfo,
                    autocommit=True,
                    prepare_threshold=None,
                    cursor_factory=psycopg.ClientCursor,
                )
                self._sample_clock()
                self._db.meanwhile = self._meanwhile
                return
            except (psycopg.OperationalError, Undone) as error:
                self._drop()
                if time.monotonic() + pause_s > deadline:
                    raise StoreError(f"cannot reach {self.url}: {first_line(error)}") from None
            except (psycopg.Error, UnicodeError) as error:
                raise StoreError(f"cannot use {self.url}: {first_line(error)}") from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def _drop(self) -> None:
        if self._db is not None:
            with contextlib.suppress(psycopg.Error):
                self._db.close()
            self._db = None
        self._unfit = False

    def _is_lost(self) -> bool:
        return self._db is None or self._db.closed

    def _refuse_other_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(f"this queue was opened by pid {self._pid}; open it anew after a fork")

    def _explained(self, error: psycopg.Error) -> StoreError:
        self._unfit = self._unfit or isinstance(error, pg.ReadOnlySqlTransaction)
        if self.limit and self.limit.is_over and isinstance(error, pg.QueryCanceled):
            return self.limit.refusal()
        return explained(error, self.url, lost=self._is_lost(), brief=self._brief)


def _token_of(micros: int, dice: bytes) -> str:
    """Names one transaction; later ones sort higher, so that old ones can be deleted by their names."""
    return f"{micros // 1000:012x}{dice.hex()}"
