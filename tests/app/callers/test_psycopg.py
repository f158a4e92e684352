"""Enqueue in the caller's own transaction, on psycopg: no commit, no job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from covey import Covey, Duplicate, NotFound
from covey.core.view import Filter
from covey.errors import StoreError, Undone
from covey.testing.until import until
from tests.kit import HandPool
from tests.kit.postgres import Given, Server

from .. import functions
from .looks import Connection, engine_of, is_usable, stored

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
