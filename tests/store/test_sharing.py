"""A queue that two users of one group share, and what each of them is told where that cannot be."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from covey.engine.engine import Engine
from covey.errors import StoreError
from covey.open import open_engine
from tests.kit import HandPool, check_queue, command
from tests.kit.faults import Fork, ForkError, in_fork
from tests.kit.lacking import need_root

T = TypeVar("T")
ANNA, BERT, TEAM = 54_001, 54_002, 54_100  # numbers that nobody has


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of the team, as docs/operations.md says: what is made there has its group."""
    need_root("being two users of one queue")
    outer = Path(tempfile.mkdtemp(dir="/tmp"))
    outer.chmod(0o755)
    inner = outer / "team"
    inner.mkdir()
    os.chown(inner, 0, TEAM)
    inner.chmod(0o2770)
    yield inner
    shutil.rmtree(outer)


def become(user: int, umask: int = 0o022) -> None:
    """With the umask that most users have, which forbids the group to write."""
    os.setgroups([TEAM])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.umask(umask)


def acting_as(user: int, work: Callable[[], T]) -> T:
    def demoted() -> T:
        become(user)
        return work()

    return in_fork(demoted)


def shared(place: Path) -> Path:
    """A queue that Anna has made and opened to the team."""
    path = place / "queue.db"

    def make() -> None:
        engine = open_engine(str(path))
        engine.enqueue([command("anna's")])
        engine.close()
        os.chmod(path, 0o660)

    acting_as(ANNA, make)
    return path


def open_at(path: Path) -> Engine:
    return open_engine(str(path))


def mode(path: Path) -> str:
    found = path.stat()
    return f"{stat.S_IMODE(found.st_mode):o} {found.st_gid}"


def test_two_users_of_a_group_enqueue_work_and_ring_whoever_came_first(place: Path) -> None:
    path = shared(place)

    def produce() -> int:
        engine = open_at(path)
        try:
            return engine.enqueue([command("bert's")])[0].id
        finally:
            engine.close()

    def work() -> Iterator[object]:
        become(ANNA)
        engine = open_at(path)
        pool = HandPool(engine)
        ear = engine.store.listen("pool")
        yield "listening"
        yield ear.wait(30)  # Bert's ring
        claims = pool.claim(9)
        for claim in claims:
            pool.succeed(claim)
        yield [claim.id for claim in claims]
        ear.close()
        engine.close()

    with Fork(work()) as anna:
        assert anna.ask() == "listening"
        made = acting_as(BERT, produce)
        assert anna.ask() is True
        assert anna.ask() == [1, made]
    engine = open_at(path)
    assert check_queue(engine, acknowledged=[1, made]) == []
    assert engine.status().counts["completed"] == 2
    engine.close()


def test_what_is_made_beside_a_shared_queue_may_be_used_by_the_group_whatever_the_umask(place: Path) -> None:
    path = shared(place)

    def use() -> dict[str, str]:
        engine = open_at(path)
        HandPool(engine)
        ear = engine.store.listen("pool")
        side = Path(f"{path}-covey")
        (bell,) = (side / "bells").iterdir()
        named = {"wal": Path(f"{path}-wal"), "shm": Path(f"{path}-shm"), "bell": bell}
        named |= {"side": side, "gate": side / "gate", "bells": side / "bells", "live": side / "live"}
        found = {name: mode(each) for name, each in named.items()}
        ear.close()
        engine.close()
        return found

    found = acting_as(ANNA, use)
    assert {name: found[name] for name in ("wal", "shm", "gate")} == dict.fromkeys(
        ("wal", "shm", "gate"), f"660 {TEAM}"
    ) | {"gate": f"664 {TEAM}"}
    assert {name: found[name] for name in ("side", "bells", "live")} == dict.fromkeys(
        ("side", "bells", "live"), f"2775 {TEAM}"
    )
    assert int(found["bell"].split()[0], 8) & 0o060 == 0o060
    assert acting_as(BERT, use)["bell"] == found["bell"]


def test_a_queue_of_one_s_own_is_opened_to_nobody(place: Path) -> None:
    path = place / "queue.db"
    acting_as(ANNA, lambda: open_at(path).close())
    side = Path(f"{path}-covey")
    assert [mode(each).split()[0] for each in (path, side, side / "gate", side / "bells")] == [
        *("644", "2755", "644", "2755")
    ]


BARRED = {
    "the queue": lambda path: os.chmod(path, 0o640),
    "its log": lambda path: os.chmod(f"{path}-wal", 0o640),
    "what its users share": lambda path: os.chmod(f"{path}-shm", 0o640),
    "the gate": lambda path: os.chmod(f"{path}-covey/gate", 0o640),
    "the bells": lambda path: os.chmod(f"{path}-covey/bells", 0o2700),
    "the directory beside it": lambda path: os.chmod(f"{path}-covey", 0o2700),
}
NAMED = {
    "the queue": "",
    "its log": "-wal",
    "what its users share": "-shm",
    "the gate": "-covey/gate",
    "the bells": "-covey/bells",
    "the directory beside it": "-covey/",
}


@pytest.mark.parametrize("what", BARRED)
def test_who_may_not_use_a_file_is_told_which_one_it_is(place: Path, what: str) -> None:
    path = shared(place)

    def hold() -> Iterator[object]:
        become(ANNA)
        engine = open_at(path)
        engine.enqueue([command()])
        BARRED[what](path)
        yield "open"

    def enqueue() -> None:
        open_at(path).enqueue([command()])

    with Fork(hold()) as anna:
        assert anna.ask() == "open"
        with pytest.raises(
            ForkError, match=f"{path}{NAMED[what]}.* cannot be written by this user; check who owns"
        ) as no:
            acting_as(BERT, enqueue)
    assert no.value.kind is StoreError
    assert "\n" not in str(no.value)


def test_a_directory_that_only_its_owner_may_write_is_named(place: Path) -> None:
    path = shared(place)
    place.chmod(0o2750)
    with pytest.raises(ForkError, match=f"the directory {place} cannot be written by this user"):
        acting_as(BERT, lambda: open_at(path).enqueue([command()]))


def test_what_a_running_job_writes_can_be_followed_by_the_group_and_else_by_nobody(place: Path) -> None:
    path = shared(place)

    def show() -> tuple[int, int]:
        engine = open_at(path)
        pool = HandPool(engine)
        claim = pool.claim_one()
        engine.show_output(pool.id, claim.id, claim.fence, "so far", "")
        os.umask(0o022)
        (file,) = Path(f"{path}-covey/live").iterdir()
        return claim.id, stat.S_IMODE(file.stat().st_mode)

    def follow(id: int) -> bytes:
        engine = open_at(path)
        try:
            return engine.output(id).stdout
        finally:
            engine.close()

    id, bits = acting_as(ANNA, show)
    assert bits == 0o640
    assert acting_as(BERT, lambda: follow(id)) == b"so far"


def test_a_live_file_that_cannot_be_kept_is_named(place: Path) -> None:
    path = shared(place)

    def keep() -> None:
        engine = open_at(path)
        pool = HandPool(engine)
        claim = pool.claim_one()
        os.chmod(f"{path}-covey/live", 0o500)
        engine.show_output(pool.id, claim.id, claim.fence, "out", "")

    with pytest.raises(ForkError, match=r"cannot be kept: Permission denied: live/1\.1\.out"):
        acting_as(ANNA, keep)
