"""A backup of the living queue, through SQLite and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from covey.engine.engine import Engine
from covey.errors import InvalidInput
from covey.store.sqlite.database import Sqlite
from covey.testing import until
from tests.kit import HandPool, check_queue, command
from tests.kit.faults import Child, strace

from . import programs


def backup(engine: Engine, target: str) -> None:
    dialect = engine.store.dialect
    assert isinstance(dialect, Sqlite)
    for _ in dialect.backup(target):
        pass


def integrity(path: str) -> list[tuple[object, ...]]:
    copy = apsw.Connection(path, apsw.SQLITE_OPEN_READONLY)
    try:
        return list(copy.execute("pragma integrity_check"))
    finally:
        copy.close()


def test_a_backup_under_load_is_whole_and_a_kill_after_it_loses_nothing(
    path: str, tmp_path: Path, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    engine = opened(path)
    engine.enqueue([command("x" * 1000) for _ in range(proof(5000, 100_000))])
    before = engine.status().counts["pending"]
    clients = [Child(programs.CLIENT, path, 1_000_000) for _ in range(2)]
    try:
        early = [int(client.line()) for client in clients]
        backup(engine, str(tmp_path / "copy.db"))
        acknowledged = early + [int(client.line()) for client in clients for _ in range(20)]
        for client in clients:
            client.kill()
            acknowledged += [int(line) for line in client.lines()]
    finally:
        for client in clients:
            client.__exit__()
    assert check_queue(opened(path), acknowledged=acknowledged) == []
    assert integrity(str(tmp_path / "copy.db")) == [("ok",)]
    copy = opened(str(tmp_path / "copy.db"))
    assert copy.status().counts["pending"] >= before + 2
    assert check_queue(copy, acknowledged=early) == []


def test_a_backup_ends_although_others_never_stop_writing(
    path: str, tmp_path: Path, opened: Callable[[str], Engine]
) -> None:
    """It copies one moment: a commit in between does not start it over."""
    engine, writer = opened(path), opened(path)
    engine.enqueue([command("x" * 100_000) for _ in range(200)])
    dialect = engine.store.dialect
    assert isinstance(dialect, Sqlite)
    left = []
    for remaining, _ in dialect.backup(str(tmp_path / "copy.db")):
        left.append(remaining)
        writer.enqueue([command()])
        engine.enqueue([command()])  # the same connection goes on too
        assert len(left) < 50
    assert left == sorted(left, reverse=True)
    assert integrity(str(tmp_path / "copy.db")) == [("ok",)]
    assert opened(str(tmp_path / "copy.db")).status().counts["pending"] == 200


def test_a_backup_never_replaces_the_queue_itself(path: str, opened: Callable[[str], Engine]) -> None:
    engine = opened(path)
    engine.enqueue([command()])
    os.symlink(path, path + ".link")
    for target in (path, path + ".link", os.path.join(os.path.dirname(path), ".", "queue.db")):
        with pytest.raises(InvalidInput):
            backup(engine, target)
    engine.enqueue([command()])
    assert opened(path).status().counts["pending"] == 2


def test_a_backup_that_was_killed_leaves_no_file_that_looks_like_one(
    path: str, tmp_path: Path, opened: Callable[[str], Engine]
) -> None:
    opened(path).enqueue([command("x" * 100_000) for _ in range(200)])
    code = """
import os, sys
from covey.open import open_engine
for _ in open_engine(sys.argv[1]).store.dialect.backup(sys.argv[2]):
    os.kill(os.getpid(), 9)
"""
    target = str(tmp_path / "copy.db")
    with Child(code, path, target) as child:
        assert child.end()[0] == -9
    assert not os.path.exists(target)
    backup(opened(path), target)
    assert integrity(target) == [("ok",)]
    assert not os.path.exists(target + ".part")


OPENS = re.compile(r'open(?:at)?\((?:AT_FDCWD, )?"(?P<path>[^"]+)", (?P<flags>[A-Z_|]+)')

BUSY_DAY = """
import sys
from covey.open import open_engine
from tests.kit import HandPool, command
engine = open_engine(sys.argv[1])
engine.enqueue([command() for _ in range(20)])
pool = HandPool(engine)
for claim in pool.claim(10):
    pool.succeed(claim)
engine.status()
for _ in engine.store.dialect.backup(sys.argv[2]):
    pass
engine.store.dialect.vacuum()
pool.lose()
engine.close()
"""


def foreign_opens(code: str, path: str, tmp_path: Path) -> list[str]:
    """Opens of the database by anybody but SQLite, who alone asks not to follow links."""
    log = tmp_path / "trace"
    with Child(code, path, tmp_path / "copy.db", before=strace("-o", str(log), "-e", "trace=open,openat")) as child:
        code_, _, err = child.end()
    assert code_ == 0, err
    until(log.exists, 5)
    found = [
        match for match in OPENS.finditer(log.read_text()) if match["path"] in (path, f"{path}-wal", f"{path}-shm")
    ]
    assert found
    return [match[0] for match in found if "O_NOFOLLOW" not in match["flags"]]


def test_nobody_but_sqlite_opens_the_database(path: str, tmp_path: Path) -> None:
    assert foreign_opens(BUSY_DAY, path, tmp_path) == []


def test_a_planted_copy_of_the_live_file_is_caught(path: str, tmp_path: Path) -> None:
    copying = BUSY_DAY + "import shutil\nshutil.copy(sys.argv[1], sys.argv[2])\n"
    assert foreign_opens(copying, path, tmp_path)


def test_vacuum_gives_the_space_of_removed_jobs_back(path: str, opened: Callable[[str], Engine]) -> None:
    engine = opened(path)
    made = engine.enqueue([command("x" * 100_000) for _ in range(100)])
    engine.remove([each.id for each in made], force=True)
    dialect = engine.store.dialect
    assert isinstance(dialect, Sqlite)
    dialect.vacuum()
    assert os.path.getsize(path) < 1 << 20
    assert os.path.getsize(f"{path}-wal") == 0
    assert dialect.problems() == []


def test_a_backup_is_another_queue_that_knows_no_pool(
    path: str, tmp_path: Path, opened: Callable[[str], Engine]
) -> None:
    """Otherwise a pool on the copy would take the original's workers on this host for its own leftovers."""
    engine = opened(path)
    HandPool(engine)
    backup(engine, str(tmp_path / "copy.db"))
    copy = opened(str(tmp_path / "copy.db"))
    assert copy.database_id != engine.database_id
    assert copy.pools() == []


def test_a_backup_that_is_broken_off_leaves_no_file(path: str, tmp_path: Path, opened: Callable[[str], Engine]) -> None:
    dialect = opened(path).store.dialect
    assert isinstance(dialect, Sqlite)
    copying = dialect.backup(str(tmp_path / "copy.db"))
    next(copying)
    copying.close()
    assert list(tmp_path.glob("copy.db*")) == []
