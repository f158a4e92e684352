"""Forward migrations on PostgreSQL: one winner, no half steps, nobody held up, nothing newer touched."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from covey import env
from covey.cli.commands.db import migrate as db_migrate
from covey.engine.engine import Engine
from covey.errors import SchemaError, Undone
from covey.open import open_dialect, open_engine
from covey.store import migrate
from covey.testing import until
from tests.kit import HandPool, check_queue, command
from tests.kit.faults import Child
from tests.kit.postgres import Given, Server, dump, load
from tests.kit.running import Watch, Yard

FITS = "alter table {jobs} add column remark text; create index jobs_remark on {jobs} (remark);"
BREAKS = "alter table {jobs} rename column fence to hedge;"
STEPS = migrate.steps("postgres")

MIGRATE = """
import sys
from covey.open import open_engine
from covey.store import migrate
_, url, second, wait = sys.argv
if second:
    known = migrate.steps("postgres")
    migrate.steps = lambda dialect: known | {max(known) + 1: second}
if wait:
    print("ready", flush=True)
    sys.stdin.readline()
engine = open_engine(url, upgrade=True)
print(engine.database_id, engine.status().schema, flush=True)
engine.close()
"""


@pytest.fixture
def schema(server: Server | Given) -> Iterator[str]:
    name = f"steps_{os.getpid()}_{os.urandom(4).hex()}"
    yield name
    with server.admin() as db:
        db.execute(f"drop schema if exists {name} cascade".encode())


@pytest.fixture
def url(server: Server | Given, schema: str) -> str:
    return server.url(schema)


@pytest.fixture
def engine_at() -> Iterator[Callable[[str], Engine]]:
    engines: list[Engine] = []

    def engine_at(url: str) -> Engine:
        engines.append(open_engine(url))
        return engines[-1]

    yield engine_at
    for engine in engines:
        engine.close()


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """This process is of a release with one more step; its number."""

    def become(script: str) -> int:
        number = max(STEPS) + 1
        monkeypatch.setattr(migrate, "steps", lambda dialect: STEPS | {number: script})
        return number

    return become


def run_migrate(url: str, say: Callable[[str], None] = lambda text: None) -> list[int]:
    dialect = open_dialect(url)
    try:
        return migrate.migrate(dialect, database_id=env.new_database_id(), now=env.now(), say=say)
    finally:
        dialect.close()


def shape(db: psycopg.Connection, schema: str) -> list[tuple[object, ...]]:
    """Tables with their settings, columns, constraints and indexes, as the server would write them."""
    told: list[tuple[object, ...]] = []
    for question in (
        "select relname, relkind, reloptions from pg_class where relnamespace = %s::regnamespace",
        "select attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull, attcollation,"
        " attidentity, pg_get_expr(adbin, adrelid) from pg_attribute join pg_class c on c.oid = attrelid"
        " left join pg_attrdef on adrelid = attrelid and adnum = attnum"
        " where relnamespace = %s::regnamespace and attnum > 0 and not attisdropped",
        "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint"
        " where connamespace = %s::regnamespace",
        "select indexname, indexdef from pg_indexes where schemaname = %s",
    ):
        rows = db.execute(question.encode(), [schema]).fetchall()
        told += sorted((tuple(str(part).replace(f"{schema}.", "") for part in row) for row in rows), key=str)
    return told


def contents(server: Server | Given, schema: str) -> dict[str, object]:
    """Every row of every table with the transaction that wrote it, and the shape: equal means untouched."""
    with server.admin() as db:
        tables = db.execute("select tablename from pg_tables where schemaname = %s", [schema]).fetchall()
        found: dict[str, object] = {
            table: db.execute(f'select xmin::text, ctid::text, t::text from {schema}."{table}" t'.encode()).fetchall()
            for (table,) in tables
        }
        return found | {"shape": shape(db, schema)}


# ── A93: forward, twice, several at once ────────────────────────────────────────────────────────────────────────────


def test_a_fresh_schema_gets_every_step_and_works(url: str, engine_at: Callable[[str], Engine]) -> None:
    assert run_migrate(url) == sorted(STEPS)
    engine = engine_at(url)
    (made,) = engine.enqueue([command()])
    assert engine.status().schema == max(STEPS)
    assert check_queue(engine, acknowledged=[made.id]) == []


@pytest.mark.parametrize("number", sorted(STEPS))
def test_a_dump_of_every_schema_number_is_loaded_migrated_and_works(
    server: Server | Given,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    engine_at: Callable[[str], Engine],
    number: int,
) -> None:
    """Loaded into another database: so a dump is a backup too."""
    monkeypatch.setattr(migrate, "steps", lambda dialect: {n: text for n, text in STEPS.items() if n <= number})
    old = open_engine(server.url(schema))
    old.enqueue([command() for _ in range(5)])
    with old.store.transaction():  # today's duties look at tables that came later; that old a queue would be refused
        old.store.raw("update {duties} set next_at = :soon", soon=old.clock() + 20_000_000)
    HandPool(old).claim(2)
    identity, before = old.database_id, [old.job(id).state for id in range(1, 6)]
    old.close()
    dumped = dump(server.admin_url, schema)
    with server.admin() as db:
        db.execute(f"create database {schema}".encode())
    try:
        parts = urlsplit(server.admin_url)._replace(path=f"/{schema}")
        load(urlunsplit(parts), dumped)
        monkeypatch.undo()
        place = urlunsplit(parts._replace(query=f"{parts.query}&schema={schema}"))
        assert run_migrate(place) == [n for n in sorted(STEPS) if n > number]
        engine = engine_at(place)
        assert (engine.database_id, [engine.job(id).state for id in range(1, 6)]) == (identity, before)
        (lost,) = engine.pools()
        assert engine.reap(lost.id, lost.beat) == 2
        pool = HandPool(engine)
        for claim in pool.claim(5):
            pool.succeed(claim)
        (made,) = engine.enqueue([command()])
        assert made.id == 6  # its numbers go on
        assert check_queue(engine, acknowledged=range(1, 7)) == []
        run_migrate(server.url(f"{schema}_fresh"))
        with server.admin() as fresh, psycopg.connect(urlunsplit(parts)) as loaded:
            assert shape(loaded, schema) == shape(fresh, f"{schema}_fresh")
        engine.close()
    finally:
        with server.admin() as db:
            db.execute(f"drop schema if exists {schema}_fresh cascade".encode())
            db.execute(f"drop database {schema} with (force)".encode())


def test_migrating_twice_does_nothing_the_second_time(
    server: Server | Given, schema: str, url: str, next_release: Callable[[str], int]
) -> None:
    run_migrate(url)
    number = next_release(FITS)
    assert run_migrate(url) == [number]
    before = contents(server, schema)
    assert run_migrate(url) == []
    assert contents(server, schema) == before


@pytest.mark.parametrize("fresh", [True, False], ids=["from nothing", "one step"])
def test_of_several_processes_at_once_one_migrates(url: str, fresh: bool) -> None:
    if not fresh:
        run_migrate(url)
    second = "" if fresh else FITS
    children = [Child(MIGRATE, url, second, "wait") for _ in range(3)]
    try:
        for child in children:
            assert child.line() == "ready"
        for child in children:
            child.say("go")
        ends = [child.end() for child in children]
    finally:
        for child in children:
            child.__exit__()
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    assert len({out for _, out, _ in ends}) == 1
    assert int(ends[0][1].split()[1]) == max(STEPS) + bool(second)


# ── A94: killed ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fresh", [True, False], ids=["from nothing", "one step"])
@pytest.mark.parametrize(
    "point", ["store.after_begin", "migrate.before_script", "migrate.after_script", "store.before_commit"]
)
def test_a_kill_at_any_step_is_repaired_by_the_next_run(
    server: Server | Given, schema: str, url: str, next_release: Callable[[str], int], point: str, fresh: bool
) -> None:
    if not fresh:
        run_migrate(url)
        next_release(FITS)
    before = contents(server, schema) if not fresh else {}
    with Child(MIGRATE, url, "" if fresh else FITS, "", failpoints={point: "kill"}) as child:
        assert child.end()[0] == -9
    if fresh:
        with server.admin() as db:
            assert not db.execute("select from pg_namespace where nspname = %s", [schema]).fetchall()
    else:
        assert contents(server, schema) == before
    assert run_migrate(url) == ([*STEPS] if fresh else [max(STEPS) + 1])
    engine = open_engine(url)
    (made,) = engine.enqueue([command()])
    assert check_queue(engine, acknowledged=[made.id]) == []
    engine.close()


def test_an_error_inside_a_step_undoes_the_step(
    server: Server | Given, schema: str, url: str, next_release: Callable[[str], int]
) -> None:
    run_migrate(url)
    before = contents(server, schema)
    next_release(f"{FITS} select 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        run_migrate(url)
    assert contents(server, schema) == before


# ── A95: old and new beside each other ──────────────────────────────────────────────────────────────────────────────


def test_new_code_on_an_old_schema_refuses_with_the_command_that_helps(
    server: Server | Given, schema: str, url: str, next_release: Callable[[str], int]
) -> None:
    run_migrate(url)
    before = contents(server, schema)
    next_release(FITS)
    with pytest.raises(SchemaError, match="run `covey db migrate`") as refusal:
        open_engine(url)
    assert "\n" not in str(refusal.value)
    assert contents(server, schema) == before


@pytest.fixture
def yard(tmp_path: Path, url: str) -> Iterator[Yard]:
    with Yard(tmp_path, url=url, heartbeat_seconds=1) as yard:
        yield yard


def test_a_running_pool_of_the_old_release_works_on_where_its_statements_still_fit(
    yard: Yard, url: str, next_release: Callable[[str], int]
) -> None:
    pool = yard.pool(count=1).started()
    id = yard.shell("echo up >>traces; while ! test -e go; do sleep 0.02; done")
    yard.trace()
    number = next_release(FITS)
    assert run_migrate(url) == [number]
    (yard.home / "go").touch()
    yard.completes(id, yard.shell("true"))
    assert pool.stop() == 0, pool.said()


def test_a_running_pool_whose_statements_do_not_fit_any_more_says_so_and_ends_with_all_it_ran(
    yard: Yard, url: str, next_release: Callable[[str], int]
) -> None:
    pool = yard.pool(count=1).started()
    yard.shell("echo up >>traces; sleep 1000")
    yard.trace()
    next_release(BREAKS)
    run_migrate(url)
    assert pool.ended(timeout_s=15) == 1
    said = pool.said().splitlines()[-1]
    assert said.startswith("error: "), pool.said()
    assert "upgrade it" in said
    assert "Traceback" not in pool.said()
    until(lambda: yard.leftovers() == [], 2, "nothing of it is left")


def test_a_pool_of_the_old_release_does_not_start_on_a_newer_schema(
    server: Server | Given, schema: str, yard: Yard
) -> None:
    with server.admin() as db:
        db.execute(f"update {schema}.meta set schema = schema + 1".encode())
    before = contents(server, schema)
    pool = yard.pool(count=1)
    assert pool.ended() == 1
    assert pool.said().strip().endswith("upgrade covey")
    assert len(pool.said().splitlines()) == 1
    assert contents(server, schema) == before


# ── A96: behind somebody's lock ─────────────────────────────────────────────────────────────────────────────────────


class Producer:
    """Enqueues without a pause, in a thread; ``longest_s`` is its worst wait."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.ids: list[int] = []
        self.longest_s = 0.0

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._end.wait(0.01):
            watch = Watch()
            self.ids += [made.id for made in self._engine.enqueue([command()])]
            self.longest_s = max(self.longest_s, watch.s)

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._engine.close()


LOCKS = {
    # Somebody's report in an open transaction: the step's table lock waits, with every writer behind it.
    "a reader": "select count(*) from SCHEMA.jobs",
    # A writer of this queue that stands still: the step waits for the queue's own lock.
    "a writer": "select pg_advisory_xact_lock_shared(LOCK)",
}


@pytest.mark.parametrize("who", LOCKS)
def test_a_step_behind_somebody_s_lock_gives_up_and_nobody_else_is_stalled(
    server: Server | Given,
    schema: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    next_release: Callable[[str], int],
    who: str,
) -> None:
    monkeypatch.setattr(migrate, "PAUSES_S", (0.5, 0.5))
    run_migrate(url)
    lock = str(open_lock(url))
    said: list[str] = []
    with Producer(url) as producer, server.admin() as other:
        until(lambda: producer.ids, 5)
        number = next_release(FITS)
        with other.transaction():
            other.execute(LOCKS[who].replace("SCHEMA", schema).replace("LOCK", lock).encode())
            watch = Watch()
            with pytest.raises(Undone, match=r"lock timeout.*nothing was changed.*try again") as refusal:
                run_migrate(url, said.append)
            assert watch.within(3 * migrate.WAIT_S + 1 + 4)
            done = len(producer.ids)
            until(lambda: len(producer.ids) > done, 3)
        assert "\n" not in str(refusal.value)
        assert [line.endswith("trying again in 0.5 s") for line in said] == [True, True]
        assert run_migrate(url) == [number]
        done = len(producer.ids)
        until(lambda: len(producer.ids) > done, 3)
    assert producer.longest_s < 3
    assert producer.longest_s > migrate.WAIT_S / 2  # it was held up at all: else this proves nothing


def test_a_step_that_was_in_the_way_for_a_moment_is_done_at_the_next_try(
    server: Server | Given,
    schema: str,
    url: str,
    next_release: Callable[[str], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Through the command, which says what it waits for."""
    run_migrate(url)
    next_release(FITS)
    with server.admin() as other:
        other.execute(f"begin; lock table {schema}.jobs in access share mode".encode())
        timer = threading.Timer(migrate.WAIT_S + 0.2, lambda: other.execute("commit"))
        timer.start()
        db_migrate(db=url)
        timer.join()
    told = capsys.readouterr()
    assert "lock timeout" in told.err
    assert "trying again in 0.5 s" in told.err
    assert told.out == f"applied {max(STEPS) + 1:04}\nschema {max(STEPS) + 1}\n"


def open_lock(url: str) -> int:
    from covey.store.postgres.url import Target

    return Target.of(url).lock


# ── A97: newer ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_newer_schema_is_refused_and_the_database_untouched(server: Server | Given, schema: str, url: str) -> None:
    engine = open_engine(url)
    engine.enqueue([command()])
    engine.close()
    with server.admin() as db:
        db.execute(f"update {schema}.meta set schema = schema + 1".encode())
    before = contents(server, schema)
    for upgrade in (False, True):
        with pytest.raises(SchemaError, match="upgrade covey") as refusal:
            open_engine(url, upgrade=upgrade)
        assert "\n" not in str(refusal.value)
    with pytest.raises(SchemaError):
        run_migrate(url)
    assert contents(server, schema) == before


def test_a_schema_that_became_newer_while_a_step_waited_is_not_touched(
    server: Server | Given, schema: str, url: str, next_release: Callable[[str], int]
) -> None:
    """Between our look and our lock another release has gone two steps further."""
    run_migrate(url)
    number = next_release(FITS)
    caught: list[BaseException] = []

    def late() -> None:
        try:
            run_migrate(url)
        except SchemaError as error:
            caught.append(error)

    with server.admin() as other:
        other.execute(f"begin; select pg_advisory_xact_lock({open_lock(url)})".encode())
        thread = threading.Thread(target=late)
        thread.start()
        waits = "select from pg_locks where locktype = 'advisory' and not granted"
        until(lambda: other.execute(waits.encode()).rowcount, 5, "it waits")
        other.execute(f"update {schema}.meta set schema = {number + 1}; commit".encode())
        before = contents(server, schema)
        thread.join()
    assert "upgrade covey" in str(caught[0])
    assert contents(server, schema) == before


def test_somebody_else_s_schema_is_refused_and_stays_as_it_is(server: Server | Given, schema: str, url: str) -> None:
    with server.admin() as db:
        db.execute(f"create schema {schema}; create table {schema}.recipes (name text)".encode())
    before = contents(server, schema)
    with pytest.raises(SchemaError, match="not a Covey queue") as refusal:
        open_engine(url)
    assert "\n" not in str(refusal.value)
    assert contents(server, schema) == before
