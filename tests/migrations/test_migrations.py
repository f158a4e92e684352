"""Forward migrations: one winner, no half steps, nobody else's file touched."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from covey import env
from covey.engine.engine import Engine
from covey.errors import SchemaError
from covey.open import open_dialect, open_engine
from covey.store import migrate
from tests.kit import check_queue, command
from tests.kit.faults import Child


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


@pytest.fixture
def engine_at() -> Iterator[Callable[[str], Engine]]:
    engines: list[Engine] = []

    def engine_at(path: str) -> Engine:
        engines.append(open_engine(path, upgrade=True))
        return engines[-1]

    yield engine_at
    for engine in engines:
        engine.close()


MIGRATE = """
import sys
from covey.open import open_engine
if len(sys.argv) > 2:
    print("ready", flush=True)
    sys.stdin.readline()
engine = open_engine(sys.argv[1], upgrade=True)
print(engine.database_id, flush=True)
engine.close()
"""


def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def run_migrate(path: str) -> list[int]:
    dialect = open_dialect(path)
    try:
        return migrate.migrate(dialect, database_id=env.new_database_id(), now=env.now())
    finally:
        dialect.close()


def test_a_fresh_file_gets_every_step_and_works(path: str, engine_at: Callable[[str], Engine]) -> None:
    assert run_migrate(path) == sorted(migrate.steps("sqlite"))
    engine = engine_at(path)
    (made,) = engine.enqueue([command()])
    assert engine.status().schema == migrate.newest("sqlite")
    assert check_queue(engine, acknowledged=[made.id]) == []
    assert engine.store.dialect.problems() == []  # type: ignore[attr-defined]


def test_migrating_twice_does_nothing_the_second_time(path: str, engine_at: Callable[[str], Engine]) -> None:
    run_migrate(path)
    identity = engine_at(path).database_id
    assert run_migrate(path) == []
    assert engine_at(path).database_id == identity


def test_of_several_processes_at_once_one_migrates(path: str, proof: Callable[[int, int], int]) -> None:
    for n in range(proof(2, 20)):
        fresh = f"{path}.{n}"
        children = [Child(MIGRATE, fresh, "wait") for _ in range(3)]
        try:
            for child in children:
                assert child.line() == "ready"
            for child in children:
                child.say("go")
            identities = [child.end() for child in children]
        finally:
            for child in children:
                child.__exit__()
        assert [code for code, _, _ in identities] == [0, 0, 0], identities
        assert len({out for _, out, _ in identities}) == 1


@pytest.mark.parametrize(
    "point", ["store.after_begin", "migrate.before_script", "migrate.after_script", "store.before_commit"]
)
def test_a_kill_at_any_step_is_repaired_by_the_next_run(
    path: str, engine_at: Callable[[str], Engine], point: str
) -> None:
    with Child(MIGRATE, path, failpoints={point: "kill"}) as child:
        assert child.end()[0] == -9
    dialect = open_dialect(path)
    assert migrate.current(dialect) == 0
    dialect.close()
    engine = engine_at(path)
    (made,) = engine.enqueue([command()])
    assert check_queue(engine, acknowledged=[made.id]) == []


def test_an_error_inside_a_step_undoes_the_step(path: str, engine_at: Callable[[str], Engine]) -> None:
    with Child(MIGRATE, path, failpoints={"migrate.after_script": "raise"}) as child:
        assert child.end()[0] != 0
    assert engine_at(path).status().schema == migrate.newest("sqlite")


def newer(path: str) -> None:
    run_migrate(path)
    db = apsw.Connection(path)
    db.execute(f"update meta set schema = {migrate.newest('sqlite') + 1}")
    db.execute("pragma wal_checkpoint(truncate)").fetchall()
    db.close()


@pytest.mark.parametrize("upgrade", [False, True])
def test_a_newer_schema_is_refused_and_the_file_untouched(path: str, upgrade: bool) -> None:
    newer(path)
    before = digest(path)
    with pytest.raises(SchemaError, match="upgrade covey") as refusal:
        open_engine(path, upgrade=upgrade)
    assert "\n" not in str(refusal.value)
    with pytest.raises(SchemaError):
        run_migrate(path)
    assert digest(path) == before


def test_an_older_schema_is_refused_with_the_command_that_helps(path: str) -> None:
    found, wanted = 1, 2
    with pytest.raises(SchemaError, match="covey db migrate"):
        migrate.check(found, wanted, path)
    migrate.check(2, 2, path)


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_somebody_else_s_database_is_refused_and_stays_as_it_is(path: str, tmp_path: Path, journal: str) -> None:
    db = apsw.Connection(path)
    db.pragma("journal_mode", journal)
    db.execute("create table recipes (name text); insert into recipes values ('soup')")
    db.close()
    before = digest(path)
    with pytest.raises(SchemaError, match="not a Covey queue") as refusal:
        open_engine(path)
    assert "\n" not in str(refusal.value)
    assert digest(path) == before
    assert os.listdir(tmp_path) == ["queue.db"]


def test_an_empty_file_becomes_a_queue(path: str, engine_at: Callable[[str], Engine]) -> None:
    Path(path).touch()
    assert engine_at(path).status().schema == migrate.newest("sqlite")


def test_who_opens_a_queue_while_it_is_made_never_takes_it_for_an_old_one(
    path: str, proof: Callable[[int, int], int]
) -> None:
    problems: list[BaseException] = []

    def open_it(fresh: str, together: threading.Barrier) -> None:
        together.wait()
        try:
            open_engine(fresh).close()
        except BaseException as problem:
            problems.append(problem)

    for n in range(proof(5, 100)):
        together = threading.Barrier(6)
        threads = [threading.Thread(target=open_it, args=(f"{path}.{n}", together)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
