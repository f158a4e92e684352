"""A job that was acknowledged is on disk, through every opener."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from covey import env
from covey.engine.engine import Engine
from covey.open import open_dialect
from covey.store import migrate
from tests.kit import HandPool, check_queue, command
from tests.kit.faults import Child

from . import programs


def test_every_acknowledged_id_survives_a_kill(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    acknowledged: list[int] = []
    for _ in range(proof(4, 20)):
        with Child(programs.CLIENT, path, 100_000) as client:
            for _ in range(50):
                acknowledged.append(int(client.line()))
            client.kill()
            acknowledged += [int(line) for line in client.lines()]
    engine = opened(path)
    assert len(acknowledged) >= proof(200, 1000)
    assert check_queue(engine, acknowledged=acknowledged) == []
    assert acknowledged == sorted(set(acknowledged))


LATE = programs.CLIENT.replace(
    "engine = open_engine(sys.argv[1])",
    """
import contextlib
from covey.store.sqlite.database import Sqlite
engine = open_engine(sys.argv[1])
db, left = engine.store.dialect._db, [10]
@contextlib.contextmanager
def late(self, **_):
    if not db.in_transaction:
        db.execute("begin immediate")
    yield
    left[0] -= 1
    if not left[0]:
        left[0] = 10
        db.execute("commit")
Sqlite.transaction = late
""",
).replace("engine.close()", "sys.stdin.readline()")


def test_a_planted_answer_before_the_commit_is_caught(path: str, opened: Callable[[str], Engine]) -> None:
    with Child(LATE, path, 25) as client:
        acknowledged = [int(client.line()) for _ in range(25)]
        client.kill()
    assert check_queue(opened(path), acknowledged=acknowledged) == [
        f"job {id} was acknowledged and is gone" for id in acknowledged[20:]
    ]


@pytest.mark.parametrize("point", ["store.after_begin", "enqueue.before_commit", "store.before_commit"])
def test_a_kill_before_the_commit_leaves_nothing_behind(path: str, opened: Callable[[str], Engine], point: str) -> None:
    opened(path)
    with Child(programs.ONCE, path, failpoints={point: "kill"}) as client:
        assert client.end()[0] == -9
    assert sum(opened(path).status().counts.values()) == 0


@pytest.mark.parametrize("point", ["store.after_commit", "enqueue.after_commit"])
def test_a_kill_after_the_commit_keeps_the_job(path: str, opened: Callable[[str], Engine], point: str) -> None:
    opened(path)
    with Child(programs.ONCE, path, failpoints={point: "kill"}) as client:
        assert client.end()[0] == -9
    assert opened(path).status().counts["pending"] == 1


PRAGMAS = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")


def assert_safe(pragmas: dict[str, object]) -> None:
    assert pragmas["journal_mode"] == "wal"
    assert pragmas["synchronous"] == 2  # FULL
    assert pragmas["foreign_keys"] == 1
    assert int(str(pragmas["busy_timeout"])) >= 5000


def test_every_opener_has_wal_full_foreign_keys_and_patience(path: str, opened: Callable[[str], Engine]) -> None:
    migrating = open_dialect(path)
    assert_safe({name: migrating.pragma(name) for name in PRAGMAS})
    migrate.migrate(migrating, database_id=env.new_database_id(), now=env.now())
    assert_safe({name: migrating.pragma(name) for name in PRAGMAS})
    migrating.close()
    engine = opened(path)
    HandPool(engine).claim(1)
    engine.status()
    reader = open_dialect(path, create=False)
    for dialect in (engine.store.dialect, reader):
        assert_safe({name: dialect.pragma(name) for name in PRAGMAS})  # type: ignore[attr-defined]
    reader.close()


def test_another_process_opens_it_just_as_safely(path: str) -> None:
    code = f"""
import json, sys
from covey.open import open_engine
engine = open_engine(sys.argv[1])
print(json.dumps({{name: engine.store.dialect.pragma(name) for name in {PRAGMAS}}}))
engine.close()
"""
    with Child(code, path) as child:
        code_, out, err = child.end()
    assert code_ == 0, err
    assert_safe(json.loads(out))


def test_normal_durability_is_a_named_choice_that_status_shows(path: str, opened: Callable[[str], Engine]) -> None:
    opened(path).set_setting("durability", "normal")
    engine = opened(path)
    assert engine.store.dialect.pragma("synchronous") == 1  # type: ignore[attr-defined]
    assert engine.status().durability == "normal"
    engine.set_setting("durability", "full")
    assert opened(path).store.dialect.pragma("synchronous") == 2  # type: ignore[attr-defined]


def test_ids_are_not_reused_after_a_restart(path: str, opened: Callable[[str], Engine]) -> None:
    first = opened(path)
    (made,) = first.enqueue([command()])
    first.remove([made.id], force=True)
    assert opened(path).enqueue([command()])[0].id > made.id
