"""What a server's owner sees of us: no session state, nothing left behind, no long transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from covey.core.view import Edit, Filter
from covey.engine.engine import Engine
from covey.errors import CoveyError, Duplicate, InvalidInput, StoreError
from covey.open import open_engine
from covey.testing import until
from tests.kit import HandPool, after, check_queue, child, command, python_task
from tests.kit.postgres import Server
from tests.kit.proxy import Pooling

from .field import Field

Open = Callable[..., Engine]
OURS = "application_name in ('covey', 'pooling')"


@pytest.fixture
def admin(server: Server) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with server.admin() as db:
        yield db


@pytest.fixture
def pooling(url: str) -> Iterator[Pooling]:
    """A pooler that never gives a client the same session twice in a row."""
    with Pooling(url) as pooling:
        yield pooling


def everything(engine: Engine, producer: Engine, count: int) -> None:
    """A bit of each verb: keys, bulks, reports of every kind, trees, lanes, pauses, changes, views."""
    engine.set_queue("line", serial=True)
    engine.set_queue("few", concurrency=2)
    made = producer.enqueue([command(f"echo {n}", key=f"k{n}") for n in range(count)])
    with pytest.raises(Duplicate):
        producer.enqueue([command(key="k0")])
    producer.enqueue([python_task("t.t", n, labels={"n": str(n)}) for n in range(count)])
    producer.enqueue([command(queue="line") for _ in range(3)] + [command(queue="few") for _ in range(3)])
    producer.enqueue([command("later", delay_s=3600, max_attempts=2)])
    engine.pause("default")
    engine.resume("default")
    engine.edit(made[-1].id, Edit(priority=5))
    engine.cancel([made[-2].id, made[-3].id])
    engine.retry([made[-3].id])
    pool, other = HandPool(engine, name="one"), HandPool(producer, name="two")
    (root,) = producer.enqueue([command("root", queue="trees", joins=True)])
    claim = HandPool(engine, name="trees", queues=("trees",))
    claim.spawn(claim.claim_one(), child("a"), child("b"), after("c"))
    while claims := pool.claim(7):
        for each in claims:
            if each.key == "k1":
                pool.fail(each)
            else:
                pool.succeed(each)
        for each in other.claim(3):
            other.succeed(each, result="1")
    assert engine.job(root.id).state == "completed"
    assert engine.status().counts["completed"] > count
    engine.why(made[0].id)
    engine.history(made[0].id)
    engine.jobs(Filter(states=("completed",), limit=5))
    engine.pool_views()
    engine.set_setting("max_attempts", "7")
    engine.unset_setting("max_attempts")
    other.lose(engine)
    engine.remove([made[0].id])
    engine.prune_window(0, {"completed": 1 << 60})
    assert check_queue(engine) == []


# ── A35 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_session_for_every_transaction(pooling: Pooling, opened: Open, engine: Engine) -> None:
    listens = "&listen=off"
    everything(opened(pooling.url + listens), opened(pooling.url + listens), 20)
    assert pooling.swaps > 100
    assert check_queue(engine) == []


def test_the_pooler_itself_notices_session_state(pooling: Pooling) -> None:
    """The test of the test: what a session remembers is not there in the next transaction."""
    with psycopg.connect(pooling.url.partition("&schema")[0], autocommit=True, sslmode="disable") as db:
        db.prepare_threshold = None
        db.execute("set application_name = 'mine'")
        seen = {db.execute("show application_name").fetchone() for _ in range(6)}  # type: ignore[arg-type]
        assert len(seen) > 1
        assert len({db.execute("select pg_backend_pid()").fetchone() for _ in range(6)}) > 1
        db.execute("prepare mine as select 1")
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            db.execute("execute mine")


def test_writers_at_the_same_time_through_few_sessions(pooling: Pooling, opened: Open, engine: Engine) -> None:
    """More clients than sessions: nobody keeps one longer than a transaction."""
    clients = [opened(f"{pooling.url}&listen=off") for _ in range(6)]
    problems: list[BaseException] = []

    def work(client: Engine) -> None:
        try:
            pool = HandPool(client)
            for _ in range(10):
                client.enqueue([command()])
                for claim in pool.claim(2):
                    pool.succeed(claim)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert check_queue(engine) == []


def test_a_pool_of_real_workers_behind_a_pooler(pooling: Pooling, url: str, tmp_path: Path) -> None:
    with Field(tmp_path, f"{pooling.url}&listen=off") as field:
        field.pool(count=2).started()
        ids = field.calls("branch", [(10 * n, 3) for n in range(10)])
        field.completes(*ids)
        assert sorted(map(int, field.traces())) == sorted(10 * n + leaf for n in range(10) for leaf in range(4))


# ── A36 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_left_behind_on_the_server(pooling: Pooling, opened: Open, admin: psycopg.Connection[Any]) -> None:
    """After a mixed run, with sessions still open: no locks, no open transaction, nothing prepared or set."""
    direct = opened()
    through = opened(f"{pooling.url}&listen=off")
    everything(direct, through, 12)
    assert left_behind(admin) == []
    sessions = [db_query(db) for db in (direct.store.dialect._db, *pooling._direct)]  # type: ignore[attr-defined]
    for query in sessions:
        assert query("select name from pg_prepared_statements", {}) == []
        assert query("select name from pg_cursors where name <> ''", {}) == []
        assert query("select relname from pg_class where relpersistence = 't'", {}) == []
        changed = "select name from pg_settings where source = 'session' and name not in ('client_encoding')"
        assert query(changed, {}) == []


def test_what_is_left_behind_is_seen(admin: psycopg.Connection[Any], server: Server) -> None:
    """The test of the test."""
    with psycopg.connect(server.admin_url, application_name="covey") as db:
        db.execute("select pg_advisory_lock(1)")
        assert {what for what, _ in left_behind(admin)} == {"advisory lock", "idle in transaction"}


def test_failed_verbs_leave_nothing_either(engine: Engine, admin: psycopg.Connection[Any]) -> None:
    (made,) = engine.enqueue([command(key="k")])
    for wrong in (
        lambda: engine.enqueue([command(), command(key="k")]),
        lambda: engine.cancel([made.id, 4711]),
        lambda: engine.retry([made.id]),
        lambda: engine.store.dialect.query("select no_such_thing", {}),
        lambda: engine.set_setting("lock_lease_seconds", "0.1"),
    ):
        with pytest.raises(CoveyError):
            wrong()
        assert left_behind(admin) == []
    assert engine.job(made.id).state == "pending"


def test_receipts_do_not_pile_up(engine: Engine, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go with the prune duty, once nobody can ask for them any more."""
    from covey.store.postgres import database as postgres

    count = "select count(*) from {receipts}"
    for _ in range(5):
        engine.enqueue([command()])
    before = engine.store.raw(count)[0][0]
    assert before >= 5
    monkeypatch.setattr(postgres, "RECEIPTS_LAST_S", -60.0)
    with engine.store.transaction(marked=False):
        engine.store.dialect.tidy()
    assert engine.store.raw(count)[0][0] == 0


def test_maintenance_runs(engine: Engine) -> None:
    engine.enqueue([command() for _ in range(100)])
    assert engine.store.dialect.problems() == []  # type: ignore[attr-defined]
    engine.store.dialect.vacuum()  # type: ignore[attr-defined]
    assert engine.status().counts["pending"] == 100


def db_query(db: psycopg.Connection[Any]) -> Callable[[str, dict[str, Any]], list[Any]]:
    return lambda sql, params: db.execute(sql.encode()).fetchall()


def left_behind(admin: psycopg.Connection[Any]) -> list[tuple[str, int]]:
    """(what, whose pid) of our sessions on the server."""
    return admin.execute(
        f"select 'advisory lock', l.pid from pg_locks l join pg_stat_activity a using (pid) "
        f"where locktype = 'advisory' and {OURS} union all "
        f"select 'idle in transaction', pid from pg_stat_activity where state like 'idle in transaction%%' and {OURS} "
        f"union all select 'open transaction', pid from pg_stat_activity "
        f"where xact_start < now() - interval '5 s' and {OURS}"
    ).fetchall()


# ── A37 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_transaction_is_open_while_a_job_runs(
    url: str, tmp_path: Path, admin: psycopg.Connection[Any], proof: Callable[[int, int], int]
) -> None:
    with Field(tmp_path, url, heartbeat_seconds=0.5) as field:
        field.pool(count=1).started()
        id = field.call("rest", proof(3, 60))
        field.runs(id)
        looks, longest = 0, 0.0
        while field.job(id).state == "processing":
            ((age,),) = admin.execute(
                "select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 "
                "from pg_stat_activity where application_name = 'covey'"
            ).fetchall()
            looks, longest = looks + 1, max(longest, age)
        assert looks > 10
        assert longest < 1  # a beat now and then, never for as long as the job
        assert field.job(id).state == "completed"


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wrong_address_is_one_clear_line(server: Server, url: str) -> None:
    good = f"{server.admin_url}&schema=names"
    cases = [
        (good.replace("/postgres?", "/nowhere?"), StoreError, "nowhere"),
        (good.replace("covey@", "nobody_at_all@"), StoreError, "nobody_at_all"),
        ("postgresql://covey@127.0.0.1:1/postgres", StoreError, "refused"),
        ("postgresql://covey@no.such.host.invalid/postgres", StoreError, "no.such.host.invalid"),
        (f"{server.admin_url}&schema=Robert'); drop", InvalidInput, "schema"),
        (f"{server.admin_url}&schema=pg_mine", InvalidInput, "schema"),
        (f"{server.admin_url}&schema=", InvalidInput, "schema"),
        (f"{server.admin_url}&listen=maybe", InvalidInput, "listen"),
        (f"{server.admin_url}&no_such_option=1", InvalidInput, "no_such_option"),
        ("postgresql://covey@127.0.0.1:notaport/postgres", StoreError, "notaport"),
    ]
    for wrong, kind, word in cases:
        with pytest.raises(CoveyError) as caught:
            open_engine(wrong).close()
        said = str(caught.value)
        assert isinstance(caught.value, kind), (wrong, caught.value)
        assert word in said, (wrong, said)
        assert "\n" not in said, said


def test_a_wrong_password_is_one_clear_line_and_is_not_shown(tmp_path: Path) -> None:
    server = Server()
    try:
        rules = Path(server.data) / "pg_hba.conf"
        rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        with server.admin() as db:
            db.execute("create role locked login password 'open sesame'; grant create on database postgres to locked")
            db.execute("select pg_reload_conf()")
        right = server.tcp_url().replace("covey@", "locked:open%20sesame@")
        until(lambda: says(right.replace("sesame", "hunter2")), 5, "the rules are read again")
        for wrong in (right.replace("sesame", "hunter2"), server.tcp_url().replace("covey@", "locked@")):
            said = says(wrong)
            assert said is not None
            assert "\n" not in said
            assert "password" in said
            assert "hunter2" not in said
        engine = open_engine(right)
        assert "sesame" not in engine.store.dialect.url
        assert engine.enqueue([command()])
        engine.close()
    finally:
        server.close()


def says(url: str) -> str | None:
    """What is wrong with it."""
    try:
        open_engine(url).close()
    except StoreError as error:
        return str(error)
    return None


def test_a_user_without_rights_is_told_so(server: Server, admin: psycopg.Connection[Any], url: str) -> None:
    admin.execute("create role guest login")
    try:
        guest = url.replace("covey@", "guest@")
        with pytest.raises(StoreError) as caught:
            open_engine(guest).close()
        assert "permission denied" in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        admin.execute("drop role guest")


def test_a_schema_that_is_not_ours_is_said_so(server: Server, admin: psycopg.Connection[Any]) -> None:
    with pytest.raises(StoreError, match="no queue in"):
        open_engine(server.url("nothing_here"), create=False)
    assert not admin.execute("select 1 from pg_namespace where nspname = 'nothing_here'").fetchall()


def test_the_server_goes_away_between_two_reads_and_nobody_notices(
    engine: Engine, admin: psycopg.Connection[Any]
) -> None:
    engine.enqueue([command()])
    for _ in range(5):
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'covey'")
        assert until(lambda: engine.status().counts["pending"], 5) == 1
