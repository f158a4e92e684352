"""What holds for a job in the caller's own transaction, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from covey import Covey, Duplicate, InvalidInput, Refused
from covey.errors import StoreError
from covey.store.store import Store
from covey.testing.until import until
from tests.kit import HandPool
from tests.kit.postgres import Given, Server

from .. import functions
from .looks import Connection, engine_of, is_usable, stored

# ── the queue's rules ───────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_of_a_serial_queue_stand_in_its_lane(app: Covey, worker: HandPool, conn: Connection) -> None:
    app.client.set_queue("line", serial=True, max_depth=3)
    add = app.task(functions.add).using(queue="line", tx=conn)
    first, second = add.enqueue(1), add.enqueue(2)
    conn.commit()
    rows = engine_of(app).store.raw("select id, lane, max_depth from {jobs} order by id")
    assert rows == [(first.id, first.id, 3), (second.id, second.id, 3)]
    assert [claim.id for claim in worker.claim()] == [first.id]


def test_a_tree_keeps_what_was_said_of_it(app: Covey, conn: Connection) -> None:
    job = app.task(functions.add).using(tx=conn, on_error="collect", mode="serial", tree_timeout=60).enqueue(1)
    conn.commit()
    ((on_error, mode, timeout),) = engine_of(app).store.raw("select on_error, child_mode, tree_timeout_s from {jobs}")
    assert (on_error, mode, timeout, stored(app)) == ("collect", "serial", 60, [job.id])


def test_rules_are_not_changed_under_an_open_transaction(app: Covey, conn: Connection, url: str) -> None:
    app.task(functions.add).using(queue="line", tx=conn).enqueue(1)
    with Covey(url) as other:
        thread = threading.Thread(target=lambda: other.client.set_queue("line", serial=True))
        thread.start()
        until(lambda: _exclusive_waits(app), 10)
        assert [queue.serial for queue in app.client.queues() if queue.name == "line"] == [False]
        conn.commit()
        thread.join(15)
    rows = engine_of(app).store.raw("select id, lane from {jobs}")
    assert all(id == lane for id, lane in rows), "the job that came by the old rules was moved with the others"


def _exclusive_waits(app: Covey) -> bool:
    found = engine_of(app).store.raw(
        "select 1 from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock' and not granted"
    )
    return bool(found)


@pytest.mark.parametrize("isolation", psycopg.IsolationLevel)
def test_a_transaction_that_sees_an_earlier_moment_obeys_todays_rules(
    app: Covey, conn: Connection, isolation: Any
) -> None:
    add = app.task(functions.add)
    conn.isolation_level = isolation
    conn.execute("select 1")
    app.client.set_queue("line", serial=True)
    job = add.using(queue="line", tx=conn).enqueue(1)
    engine_of(app).store.raw("update {meta} set sealed = 'elsewhere'")
    with pytest.raises(Refused, match="moved to elsewhere"):
        add.using(tx=conn).enqueue(2)
    conn.commit()
    assert engine_of(app).store.raw("select id, lane from {jobs}") == [(job.id, job.id)]


def test_a_sealed_queue_is_refused_and_nothing_changes(app: Covey, conn: Connection) -> None:
    engine = engine_of(app)
    with engine.store.transaction(alone=True):
        engine.store.ask("seal", sealed="elsewhere")
    with pytest.raises(Refused, match="moved to elsewhere"):
        app.task(functions.add).using(tx=conn, queue="new").enqueue(1)
    assert is_usable(conn)
    conn.commit()
    assert (stored(app), app.client.queues()) == ([], [])


def test_a_queue_is_not_sealed_under_an_open_transaction(app: Covey, conn: Connection, url: str) -> None:
    job = app.task(functions.add).using(tx=conn).enqueue(1)
    seen: list[int] = []
    with Covey(url) as other:
        store = engine_of(other).store

        def seal() -> None:
            with store.transaction(alone=True):
                store.ask("seal", sealed="elsewhere")
                seen.extend(row[0] for row in store.raw("select id from {jobs}"))

        thread = threading.Thread(target=seal)
        thread.start()
        until(lambda: _exclusive_waits(app), 10)
        conn.commit()
        thread.join(15)
    assert seen == [job.id], "what was committed before the seal is there to be copied"


def test_a_new_queue_is_not_held_up_by_an_open_transaction(app: Covey, conn: Connection, url: str) -> None:
    add = app.task(functions.add)
    add.using(queue="new", tx=conn).enqueue(1)
    with Covey(url) as other:
        job = other.task(functions.add).using(queue="new").enqueue(2)
    conn.rollback()
    assert stored(app) == [job.id]
    assert [queue.name for queue in app.client.queues()] == ["new"]


def test_no_setting_is_left_behind(app: Covey, conn: Connection) -> None:
    names = (
        "enable_seqscan",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "synchronous_commit",
        "search_path",
    )
    ask = " || ' ' || ".join(f"current_setting('{name}')" for name in names)
    before = conn.execute(f"select {ask}".encode()).fetchone()
    add = app.task(functions.add)
    add.using(tx=conn, key="a").enqueue(1)
    with pytest.raises(Duplicate):
        add.using(tx=conn, key="a").enqueue(1)
    assert conn.execute(f"select {ask}".encode()).fetchone() == before
    conn.commit()
    assert conn.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_autocommit_without_a_transaction_is_refused(app: Covey, connect: Callable[..., Connection]) -> None:
    conn = connect(autocommit=True)
    add = app.task(functions.add)
    with pytest.raises(Refused, match="autocommit mode and no transaction is open"):
        add.using(tx=conn).enqueue(1)
    with conn.transaction():
        job = add.using(tx=conn).enqueue(2)
        assert stored(app) == []
    assert stored(app) == [job.id]
    conn.execute("begin")
    add.using(tx=conn).enqueue(3)
    conn.execute("rollback")
    assert stored(app) == [job.id]


def test_a_failed_transaction_is_refused(app: Covey, conn: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("select 1 / 0")
    with pytest.raises(Refused, match="failed already; roll it back"):
        app.task(functions.add).using(tx=conn).enqueue(1)


def test_a_closed_connection_is_refused(app: Covey, conn: Connection) -> None:
    conn.close()
    with pytest.raises(StoreError, match="closed or broken"):
        app.task(functions.add).using(tx=conn).enqueue(1)


def test_pipeline_mode_is_refused(app: Covey, conn: Connection) -> None:
    with conn.pipeline(), pytest.raises(Refused, match="pipeline"):
        app.task(functions.add).using(tx=conn).enqueue(1)


def test_a_read_only_transaction_is_refused_and_goes_on(app: Covey, conn: Connection) -> None:
    conn.read_only = True
    with pytest.raises(StoreError, match="read-only"):
        app.task(functions.add).using(tx=conn).enqueue(1)
    assert is_usable(conn)


def test_another_database_is_refused_and_its_transaction_goes_on(
    app: Covey, server: Server | Given, postgres_queue: Callable[[], str]
) -> None:
    with server.admin() as admin:
        admin.execute("drop database if exists elsewhere")
        admin.execute("create database elsewhere")
    schema = engine_of(app).store.dialect.prefix.strip('".')
    elsewhere = server.admin_url.replace("/postgres?", "/elsewhere?")
    add = app.task(functions.add)
    try:
        with psycopg.connect(elsewhere) as conn:
            with pytest.raises(StoreError, match="the connection leads elsewhere than"):
                add.using(tx=conn).enqueue(1)
            assert is_usable(conn)
        with Covey(f"{elsewhere}&schema={schema}") as other:
            assert stored(other) == []
            with psycopg.connect(elsewhere) as conn:
                with pytest.raises(Refused, match="leads to another queue than"):
                    add.using(tx=conn).enqueue(1)
                assert is_usable(conn)
            assert stored(other) == []
    finally:
        with server.admin() as admin:
            admin.execute("drop database elsewhere with (force)")


def test_bad_input_is_refused_before_anything_is_sent(app: Covey, conn: Connection) -> None:
    add = app.task(functions.add)
    for bad in (
        lambda: add.using(tx=conn).enqueue("a", 2, 3),  # type: ignore[call-arg, arg-type]
        lambda: add.using(tx=conn, key="12").enqueue(1),
        lambda: add.using(tx=conn, queue="").enqueue(1),
        lambda: add.using(tx=conn, delay=float("nan")).enqueue(1),
        lambda: add.using(tx=conn).enqueue(object()),  # type: ignore[arg-type]
        lambda: app.shell("", tx=conn),
    ):
        with pytest.raises(InvalidInput):
            bad()
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("tx", ["postgresql://", 5, object(), psycopg.Connection])
def test_anything_else_is_refused(app: Covey, tx: object) -> None:
    with pytest.raises(InvalidInput, match=r"tx= is a .*; it takes app.transaction\(\), a connection of psycopg"):
        app.task(functions.add).using(tx=tx).enqueue(1)


def test_sqlite_is_refused(conn: Connection) -> None:
    with Covey("memory:callers") as app:
        with pytest.raises(InvalidInput, match="needs a queue on PostgreSQL"):
            app.task(functions.add).using(tx=conn).enqueue(1)
        assert stored(app) == []


def test_the_callers_own_factories_do_not_matter(app: Covey, connect: Callable[..., Connection]) -> None:
    conn = connect(row_factory=dict_row, cursor_factory=psycopg.RawCursor, prepare_threshold=0)
    add = app.task(functions.add)
    jobs = [add.using(tx=conn, key=f"k{n}").enqueue(n) for n in range(3)]
    conn.commit()
    assert stored(app) == [job.id for job in jobs]
    assert conn.execute("select count(*) as n from pg_prepared_statements").fetchone() == {"n": 1}, "itself"


def test_a_store_keeps_its_statements_to_itself(app: Covey) -> None:
    """They are loaded once for all; whoever changes one of theirs changes nobody else's."""
    store = engine_of(app).store
    other = Store(store.dialect)
    other._sql["meta"] = "nonsense"
    assert store._sql["meta"] != "nonsense"
