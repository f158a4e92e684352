"""Where the file is, whose it is, and whether it is still there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from covey.engine.engine import Engine
from covey.errors import CoveyError, InvalidInput, StoreError
from covey.open import open_dialect, open_engine
from covey.store.sqlite import database as sqlite
from tests.kit import command
from tests.kit.faults import Child, ForkError, in_fork

from . import programs


def one_line(error: BaseException) -> str:
    assert isinstance(error, CoveyError)
    assert "\n" not in str(error)
    assert error.exit_code != 0
    return str(error)


# ── A25 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def unlink(path: str) -> None:
    os.unlink(path)


def replace(path: str) -> None:
    shutil.copy(path, path + ".new")
    os.replace(path + ".new", path)


def remove_directory(path: str) -> None:
    shutil.rmtree(os.path.dirname(path))


@pytest.mark.parametrize("vanish", [unlink, replace, remove_directory])
def test_nothing_is_acknowledged_once_the_file_is_gone_or_another(
    tmp_path: Path, opened: Callable[[str], Engine], vanish: Callable[[str], None]
) -> None:
    (tmp_path / "place").mkdir()
    path = str(tmp_path / "place" / "queue.db")
    engine = opened(path)
    engine.enqueue([command()])
    vanish(path)
    for _ in range(3):
        with pytest.raises(StoreError, match="removed or replaced") as refusal:
            engine.enqueue([command()])
        one_line(refusal.value)


def test_a_file_that_vanishes_inside_the_transaction_is_noticed_before_the_commit(
    path: str, opened: Callable[[str], Engine]
) -> None:
    engine = opened(path)
    with pytest.raises(StoreError, match="removed or replaced"), engine.store.transaction():
        os.unlink(path)


# ── A26 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users can reach."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    yield place
    for root, directories, _ in os.walk(place):
        for name in directories:
            os.chmod(os.path.join(root, name), 0o755)
    shutil.rmtree(place)


def as_nobody(work: Callable[[], object]) -> ForkError:
    """What an ordinary user is told: root may write everywhere, so it becomes somebody else first."""

    def demoted() -> object:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        return work()

    with pytest.raises(ForkError) as raised:
        in_fork(demoted)
    assert issubclass(raised.value.kind, StoreError), raised.value.trace
    assert "\n" not in str(raised.value)
    return raised.value


def enqueue_at(path: Path) -> Callable[[], object]:
    return lambda: open_engine(str(path)).enqueue([command()])


def test_a_read_only_file_is_refused_in_one_line(shared: Path) -> None:
    path = shared / "queue.db"
    open_engine(str(path)).close()
    for each in [shared, *shared.rglob("*")]:
        each.chmod(0o777 if each.is_dir() else 0o444)
    assert str(path) in str(as_nobody(enqueue_at(path)))


def test_a_read_only_directory_is_refused_in_one_line(shared: Path) -> None:
    (shared / "locked").mkdir(mode=0o555)
    path = shared / "locked" / "queue.db"
    assert str(path) in str(as_nobody(enqueue_at(path)))
    assert list((shared / "locked").iterdir()) == []


def test_somebody_else_s_queue_is_refused_in_one_line(shared: Path) -> None:
    path = shared / "queue.db"
    open_engine(str(path)).close()
    for each in shared.rglob("*"):
        each.chmod(0o755 if each.is_dir() else 0o644)
    assert str(path) in str(as_nobody(enqueue_at(path)))


def test_a_missing_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no directory") as refusal:
        open_engine(str(tmp_path / "none" / "queue.db"))
    one_line(refusal.value)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are notes, not a database\n" * 200)
    with pytest.raises(StoreError, match="not a SQLite database") as refusal:
        open_engine(str(path))
    one_line(refusal.value)
    assert path.read_bytes() == b"these are notes, not a database\n" * 200
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_directory_instead_of_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory") as refusal:
        open_engine(str(tmp_path))
    one_line(refusal.value)


def test_a_file_locked_by_another_program_is_refused_in_one_line(path: str) -> None:
    open_engine(path).close()
    other = apsw.Connection(path)
    other.execute("pragma journal_mode = delete; begin exclusive").fetchall()
    try:
        with pytest.raises(StoreError, match="locked by a program that is not Covey") as refusal:
            sqlite.Sqlite(path, timeout_s=0.05)
        one_line(refusal.value)
    finally:
        other.close()


def test_a_command_says_it_in_one_line_and_exits_with_an_error(tmp_path: Path) -> None:
    with Child(programs.ONCE, tmp_path / "none" / "queue.db") as child:
        code, out, err = child.end()
    assert (code, len(out.splitlines()), err) == (1, 1, "")


def test_a_queue_that_is_not_there_is_not_made_when_only_looked_for(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no queue at"):
        open_engine(str(tmp_path / "queue.db"), create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["mysql://x/y", "redis://localhost", "a\x00b", "sqlite://"])
def test_a_strange_url_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        open_engine(url)
    one_line(refusal.value)


def test_every_spelling_of_a_path_is_the_same_queue(
    tmp_path: Path, opened: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (made,) = opened("queue.db").enqueue([command()])
    for url in (f"{tmp_path}/queue.db", f"sqlite://{tmp_path}/queue.db", "./queue.db", f"{tmp_path}/x/../queue.db"):
        assert opened(url).job(made.id).id == made.id


# ── A29 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export {at}/nfs nfs4 rw 0 0
//server/share {at}/my\\040share cifs rw 0 0
host0 {at}/vm 9p rw 0 0
/dev/vdb {at}/vm/disk ext4 rw 0 0
tmpfs {at}/nfs/local tmpfs rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("nfs", "nfs4"),
        ("nfs/deep/er", "nfs4"),
        ("nfs/local", "tmpfs"),
        ("nfs-neighbour", "ext4"),
        ("my share", "cifs"),
        ("vm", "9p"),
        ("vm/disk", "ext4"),
        ("elsewhere", "ext4"),
    ],
)
def test_a_network_file_system_is_recognised_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    (tmp_path / "mounts").write_text(MOUNTS.format(at=tmp_path))
    monkeypatch.setattr(sqlite, "MOUNTS", str(tmp_path / "mounts"))
    directory = tmp_path / place
    directory.mkdir(parents=True)
    assert sqlite.file_system_of(str(directory)) == kind
    if kind in ("nfs4", "cifs", "9p"):
        with pytest.raises(StoreError, match=kind) as refusal:
            open_engine(str(directory / "queue.db"))
        one_line(refusal.value)
        assert list(directory.iterdir()) == []
    else:
        open_dialect(str(directory / "queue.db")).close()
