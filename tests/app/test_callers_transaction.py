"""Enqueue in the caller's own transaction, on psycopg: no commit, no job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from covey import Covey, Duplicate, InvalidInput, NotFound, Refused
from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import StoreError, Undone
from covey.store.store import Store
from covey.testing import HandPool
from covey.testing.postgres import Given, Server
from covey.testing.until import until

from . import functions

Connection = psycopg.Connection[Any]


@pytest.fixture
def url(postgres_queue: Callable[[], str]) -> str:
    return postgres_queue()


@pytest.fixture
def connect(server: Server | Given) -> Iterator[Callable[..., Connection]]:
    """A connection as an application has one: of its own, not in autocommit mode."""
    opened: list[Connection] = []

    def connect(**options: Any) -> Connection:
        opened.append(psycopg.connect(server.admin_url, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def conn(connect: Callable[..., Connection]) -> Connection:
    return connect()


def engine_of(app: Covey) -> Engine:
    assert isinstance(app.client, Engine)
    return app.client


def stored(app: Covey) -> list[int]:
    return sorted(job.id for job in app.client.jobs(Filter()).jobs)


def is_usable(conn: Connection) -> bool:
    return conn.execute("select 1").fetchone() == (1,)


# ── commit and rollback ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_job_is_there_when_the_caller_commits_and_not_before(app: Covey, conn: Connection) -> None:
    add = app.task(functions.add)
    job = add.using(tx=conn, priority=3).enqueue(1, b=2)
    assert job.id > 0
    assert stored(app) == []
    with pytest.raises(NotFound):
        _ = job.state
    conn.commit()
    assert stored(app) == [job.id]
    assert (job.state, job.view.args, job.view.priority) == ("pending", [[1], {"b": 2}], 3)


def test_a_rollback_leaves_nothing(app: Covey, conn: Connection) -> None:
    app.task(functions.add).using(tx=conn).enqueue(1)
    conn.rollback()
    assert stored(app) == []


def test_the_callers_rows_and_the_job_are_one_transaction(app: Covey, connect: Callable[..., Connection]) -> None:
    conn, other = connect(), connect(autocommit=True)
    other.execute("drop table if exists orders; create table orders (id bigint)")
    add = app.task(functions.add)
    with conn.transaction(force_rollback=True):
        conn.execute("insert into orders values (1)")
        add.using(tx=conn).enqueue(1)
    assert (stored(app), other.execute("select count(*) from orders").fetchone()) == ([], (0,))
    with conn.transaction():
        conn.execute("insert into orders values (1)")
        job = add.using(tx=conn).enqueue(1)
    assert (stored(app), other.execute("select count(*) from orders").fetchone()) == ([job.id], (1,))


def test_a_connection_that_is_lost_before_the_commit_leaves_nothing(app: Covey, conn: Connection) -> None:
    app.task(functions.add).using(tx=conn).enqueue(1)
    conn.close()
    assert stored(app) == []


def test_a_session_that_the_server_ends_before_the_commit_leaves_nothing(
    app: Covey, conn: Connection, server: Server | Given
) -> None:
    add = app.task(functions.add)
    add.using(tx=conn).enqueue(1)
    with server.admin() as admin:
        admin.execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        conn.commit()
    assert stored(app) == []
    with pytest.raises(StoreError, match="closed or broken"):
        add.using(tx=conn).enqueue(1)


def test_a_session_that_ends_unnoticed_raises_one_line(app: Covey, conn: Connection, server: Server | Given) -> None:
    add = app.task(functions.add)
    conn.execute("select 1")
    with server.admin() as admin:
        admin.execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))
    with pytest.raises(StoreError, match=r"^nothing was enqueued: .+$"):
        add.using(tx=conn).enqueue(1)


def test_a_savepoint_that_the_caller_rolls_back_to_drops_the_job(app: Covey, conn: Connection) -> None:
    add = app.task(functions.add)
    with conn.transaction():
        kept = add.using(tx=conn).enqueue(1)
        with conn.transaction(force_rollback=True):
            add.using(tx=conn).enqueue(2)
        also = add.using(tx=conn).enqueue(3)
    assert stored(app) == [kept.id, also.id]


def test_many_shell_and_variants_of_variants(app: Covey, conn: Connection) -> None:
    add = app.task(functions.add)
    jobs = [
        *add.using(tx=conn).enqueue_many([add.call(1), add.using(priority=4).call(2)]),
        app.shell("true", tx=conn),
        app.shell(["echo", "100%", "it's \\ 'quoted' %s %(p0)s"], tx=conn),
        add.using(tx=conn).using(priority=7).enqueue(3),
        add.using(tx=conn, delay=60).enqueue(4),
        app.task(functions.nothing).using(tx=conn).enqueue(),
    ]
    assert stored(app) == []
    conn.commit()
    assert stored(app) == [job.id for job in jobs]
    assert [job.view.priority for job in jobs] == [0, 4, 0, 0, 7, 0, 0]
    assert jobs[5].state == "scheduled"
    assert jobs[3].view.args == {"argv": ["echo", "100%", "it's \\ 'quoted' %s %(p0)s"]}


def test_more_than_one_batch_of_rows(app: Covey, conn: Connection) -> None:
    add = app.task(functions.add)
    jobs = add.using(tx=conn).enqueue_many([add.call(n) for n in range(1201)])
    conn.commit()
    assert [job.view.args for job in (jobs[0], jobs[500], jobs[1200])] == [[[0], {}], [[500], {}], [[1200], {}]]
    assert [job.id for job in jobs] == sorted({job.id for job in jobs})
    assert add.using(tx=conn).enqueue_many([]) == []


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_text_arrives_as_it_is(app: Covey, conn: Connection, conforming: str) -> None:
    text = "' \\' \\\\ % %% %s :name ü 🐈 \n\t \" -- /* "
    conn.execute(f"set standard_conforming_strings to {conforming}")
    job = app.task(functions.takes_anything).using(tx=conn, key=text[:20], labels={"a": text[:24]}).enqueue(text)
    conn.commit()
    assert job.view.args == [[text], {}]
    assert (job.view.key, job.view.labels) == (text[:20], {"a": text[:24]})


def test_a_worker_runs_it(app: Covey, worker: HandPool, conn: Connection) -> None:
    job = app.task(functions.add).using(tx=conn).enqueue(1)
    assert worker.claim() == []
    conn.commit()
    assert [claim.id for claim in worker.claim()] == [job.id]


def test_an_explicit_connection_wins_over_an_open_block(app: Covey, conn: Connection) -> None:
    add = app.task(functions.add)
    with app.transaction():
        add.using(tx=conn).enqueue(1)
        mine = add.enqueue(2)
    conn.rollback()
    assert stored(app) == [mine.id]


# ── wake-up ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_pool_hears_of_it_at_the_commit_and_not_before(
    app: Covey, conn: Connection, server: Server | Given
) -> None:
    add = app.task(functions.add)
    with server.admin() as ear:
        ear.execute(f'listen "{engine_of(app).store.dialect.channel}"'.encode())
        add.using(tx=conn).enqueue_many([add.call(1), add.call(2), add.using(queue="other").call(3)])
        add.using(tx=conn).enqueue(4)
        assert list(ear.notifies(timeout=0.2, stop_after=1)) == []
        conn.commit()
        assert [heard.payload for heard in ear.notifies(timeout=5, stop_after=1)] == ["pool"]
        assert list(ear.notifies(timeout=0.1, stop_after=1)) == [], "the server folds equal ones of one transaction"
        add.using(tx=conn).enqueue(5)
        conn.rollback()
        assert list(ear.notifies(timeout=0.2, stop_after=1)) == []


def test_an_engine_that_waits_is_woken_by_the_commit(app: Covey, worker: HandPool, conn: Connection) -> None:
    engine = engine_of(app)
    while engine.wait(worker.id, None, 0.3):  # the listener has connected, and says so once
        pass
    app.task(functions.add).using(tx=conn).enqueue(1)
    assert not engine.wait(worker.id, None, 0.2)
    timer = threading.Timer(0.1, conn.commit)
    timer.start()
    assert engine.wait(worker.id, None, 10)
    timer.join()


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["key", "unique_key"])
def test_a_taken_key_is_refused_and_the_transaction_goes_on(app: Covey, conn: Connection, name: Any) -> None:
    add = app.task(functions.add)
    first = add.using(**{name: "a"}).enqueue(1)
    own = add.using(tx=conn).enqueue(2)
    with pytest.raises(Duplicate) as refusal:
        add.using(tx=conn, **{name: "a"}).enqueue(3)
    assert refusal.value.job_id == first.id
    found = add.using(tx=conn, if_exists="return", **{name: "a"}).enqueue(4)
    assert (found.id, found.existing) == (first.id, True)
    conn.commit()
    assert stored(app) == [first.id, own.id]


@pytest.mark.parametrize("name", ["key", "unique_key"])
def test_a_key_that_this_very_transaction_took_is_taken(app: Covey, conn: Connection, name: Any) -> None:
    add = app.task(functions.add)
    first = add.using(tx=conn, **{name: "a"}).enqueue(1)
    with pytest.raises(Duplicate) as refusal:
        add.using(tx=conn, **{name: "a"}).enqueue(2)
    assert refusal.value.job_id == first.id
    assert add.using(tx=conn, if_exists="return", **{name: "a"}).enqueue(3).id == first.id
    conn.commit()
    assert stored(app) == [first.id]


def test_a_refused_batch_leaves_none_of_its_jobs(app: Covey, conn: Connection) -> None:
    add = app.task(functions.add)
    add.using(key="taken").enqueue(0)
    kept = add.using(tx=conn).enqueue(1)
    with pytest.raises(Duplicate):
        add.using(tx=conn).enqueue_many([add.call(2), add.using(key="taken").call(3)])
    conn.commit()
    assert stored(app) == [kept.id - 1, kept.id]


@pytest.mark.parametrize("isolation", psycopg.IsolationLevel)
@pytest.mark.parametrize("if_exists", ["error", "return"])
@pytest.mark.parametrize("name", ["key", "unique_key"])
def test_a_key_that_somebody_commits_while_we_wait_for_it(
    app: Covey, connect: Callable[..., Connection], isolation: Any, if_exists: Any, name: Any
) -> None:
    """The look finds nothing, the insert waits for the other one's commit, and then the key is taken."""
    mine, theirs = connect(), connect()
    mine.isolation_level = isolation
    add = app.task(functions.add)
    kept = add.using(tx=mine).enqueue(1)
    first = add.using(tx=theirs, **{name: "a"}).enqueue(2)
    outcome: list[Any] = []

    def enqueue() -> None:
        try:
            outcome.append(add.using(tx=mine, if_exists=if_exists, **{name: "a"}).enqueue(3))
        except Duplicate as error:
            outcome.append(error)

    thread = threading.Thread(target=enqueue)
    thread.start()
    until(lambda: _waits(theirs, mine), 10)
    theirs.commit()
    thread.join(10)
    (answer,) = outcome
    assert (answer.job_id if if_exists == "error" else answer.id) == first.id
    assert is_usable(mine)
    mine.commit()
    assert stored(app) == sorted([kept.id, first.id])


def test_a_key_that_somebody_gives_up_while_we_wait_for_it_is_ours(
    app: Covey, connect: Callable[..., Connection]
) -> None:
    mine, theirs = connect(), connect()
    add = app.task(functions.add)
    add.using(tx=theirs, key="a").enqueue(1)
    jobs: list[Any] = []
    thread = threading.Thread(target=lambda: jobs.append(add.using(tx=mine, key="a").enqueue(2)))
    thread.start()
    until(lambda: _waits(theirs, mine), 10)
    theirs.rollback()
    thread.join(10)
    mine.commit()
    assert stored(app) == [jobs[0].id]


def test_a_deadlock_of_keys_leaves_both_transactions_usable(app: Covey, connect: Callable[..., Connection]) -> None:
    one, two = connect(), connect()
    add = app.task(functions.add)
    add.using(tx=one, key="a").enqueue(1)
    add.using(tx=two, key="b").enqueue(2)
    failures: list[Exception] = []

    def enqueue(conn: Connection, key: str) -> None:
        try:
            add.using(tx=conn, key=key).enqueue(3)
        except (Undone, Duplicate) as error:
            failures.append(error)
        assert is_usable(conn)
        conn.commit()

    threads = [threading.Thread(target=enqueue, args=args) for args in ((one, "b"), (two, "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert any("begin your transaction again" in str(error) for error in failures)
    assert sorted(job.key or "" for job in app.client.jobs(Filter()).jobs) == ["a", "b"]


def _waits(theirs: Connection, mine: Connection) -> bool:
    found = theirs.execute("select cardinality(pg_blocking_pids(%s)) > 0", (mine.info.backend_pid,)).fetchone()
    return found == (True,)


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
