"""A disk that is full or fails, under a client and under a pool. Calls of the kernel fail by strace."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.engine.engine import Engine
from covey.errors import StoreError
from covey.testing import until
from tests.kit import check_queue, command
from tests.kit.faults import Child, FailingDisk, SmallDisk, strace
from tests.kit.running import RunningPool, Yard

from . import programs


def suffer(path: str, inject: str, rounds: int) -> tuple[list[int], list[str]]:
    """(acknowledged ids, errors) of a client whose disk fails now and then, and who goes on."""
    options = ["-o", "/dev/null", "-P", path, "-P", f"{path}-wal", "-e", f"inject={inject}"]
    with Child(programs.STUBBORN, path, rounds, before=strace(*options)) as client:
        code, out, err = client.end(timeout_s=120)
    assert code == 0, err
    lines = [line.partition(" ") for line in out.splitlines()]
    assert lines[-1][0] == "end"
    acknowledged = [int(id) for kind, _, rest in lines if kind == "ids" for id in rest.split()]
    return acknowledged, [rest for kind, _, rest in lines if kind == "error"]


@pytest.mark.parametrize("when", ["3+47", "8+31", "1+73"])
def test_a_full_disk_is_an_error_to_the_caller_leaves_no_half_rows_and_passes(
    path: str, opened: Callable[[str], Engine], when: str, proof: Callable[[int, int], int]
) -> None:
    opened(path).close()
    acknowledged, errors = suffer(path, f"pwrite64:error=ENOSPC:when={when}", proof(25, 200))
    assert errors
    assert acknowledged
    assert all("no space left" in error for error in errors)
    engine = opened(path)
    assert check_queue(engine, acknowledged=acknowledged) == []
    assert sum(engine.status().counts.values()) == len(acknowledged)  # whole batches, and only those that were answered
    assert engine.store.dialect.problems() == []  # type: ignore[attr-defined]


def test_a_failed_fsync_is_no_acknowledgement_and_the_next_one_works(
    path: str, opened: Callable[[str], Engine], proof: Callable[[int, int], int]
) -> None:
    opened(path).close()
    acknowledged, errors = suffer(path, "fdatasync:error=EIO:when=2+3", proof(12, 100))
    assert errors
    assert all("the disk failed" in error for error in errors)
    assert len(acknowledged) // 3 + len(errors) == proof(12, 100)
    engine = opened(path)
    assert check_queue(engine, acknowledged=acknowledged) == []
    assert engine.store.dialect.problems() == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
@pytest.mark.parametrize("when", ["5", "7+"])  # once; from then on for ever
def test_what_was_refused_is_not_there_after_a_crash_either(
    path: str, opened: Callable[[str], Engine], call: str, when: str
) -> None:
    """SQLite itself takes a transaction whose fsync failed for committed, if a crash comes before the next one."""
    opened(path).close()
    count = when if call == "fdatasync" else when.replace("5", "21").replace("7", "23")
    options = ["-o", "/dev/null", "-P", path, "-P", f"{path}-wal", "-e", f"inject={call}:error=EIO:when={count}"]
    with Child(programs.BRITTLE, path, before=strace(*options)) as client:
        code, out, err = client.end()
    assert code == -signal.SIGKILL, err
    *batches, last = out.splitlines()
    assert last.startswith("StoreError the disk failed"), last
    acknowledged = [int(id) for batch in batches for id in batch.split()[1:]]
    engine = opened(path)
    assert check_queue(engine, acknowledged=acknowledged) == []
    assert sum(engine.status().counts.values()) == len(acknowledged) > 0


# ── pools ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def full(disk: SmallDisk) -> Iterator[None]:
    disk.fill()
    yield
    disk.free()


@contextlib.contextmanager
def bounded(pool: RunningPool) -> Iterator[None]:
    """No file may grow any more: for that nobody needs to be root."""
    before = resource.prlimit(pool.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pool.pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.prlimit(pool.pid, resource.RLIMIT_FSIZE, before)


def suffers(yard: Yard, fails: contextlib.AbstractContextManager[object], pool: RunningPool, reason: str) -> None:
    """A result that cannot be stored is kept by its pool, said once, and stored by it when the disk works again."""
    before = pool.said().count("the queue cannot be used")
    id = yard.shell("until test -e go; do sleep 0.05; done; echo ran >>traces")
    yard.runs(id)
    began = time.monotonic()
    with fails:
        (yard.home / "go").touch()
        yard.trace(least=1)
        until(lambda: reason in pool.said(), 15, f"the pool says {reason}: {pool.said()}")
        assert yard.job(id).state == "processing"
        assert pool.process.poll() is None
    (job,) = yard.completes(id, within_s=30)
    assert (job.attempts, yard.traces()) == (1, ["ran"])
    assert pool.process.poll() is None
    said = pool.said().count("the queue cannot be used") - before
    assert 1 <= said <= 1 + (time.monotonic() - began) / 10, pool.said()  # a line that repeats: once in ten seconds
    assert "Traceback" not in pool.said()
    (yard.home / "go").unlink()
    (yard.home / "traces").unlink()


FAULTS = {
    "fdatasync:error=EIO": "the disk failed",
    "pwrite64:error=EIO": "the disk failed",
    "pwrite64:error=ENOSPC": "no space left",
    "pwrite64:error=EROFS": "the disk failed",
}


def test_a_pool_whose_disk_fails_keeps_its_results_and_goes_on(
    tmp_path: Path, proof: Callable[[list[str], list[str]], list[str]]
) -> None:
    with Yard(tmp_path) as yard:
        for inject in proof(["fdatasync:error=EIO", "pwrite64:error=EROFS"], list(FAULTS)):
            pool = yard.pool(count=1, commands_only=True).started()
            suffers(yard, FailingDisk(pool.pid, [yard.db, f"{yard.db}-wal"], inject), pool, FAULTS[inject])
            assert pool.stop() == 0
        assert check_queue(yard.engine) == []


def test_a_pool_whose_files_may_not_grow_goes_on_when_they_may(tmp_path: Path) -> None:
    with Yard(tmp_path) as yard:
        pool = yard.pool(count=1, commands_only=True).started()
        suffers(yard, bounded(pool), pool, "the disk failed")
        assert pool.stop() == 0


def test_a_full_disk_stops_clients_and_pools_until_there_is_room(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    with contextlib.ExitStack() as closing:
        disk = closing.enter_context(SmallDisk(str(place), 8))
        yard = closing.enter_context(Yard(tmp_path, url=str(place / "queue.db")))
        pool = yard.pool(count=1, commands_only=True).started()
        made = yard.engine.enqueue([command("true", cwd=str(tmp_path))])
        suffers(yard, full(disk), pool, "no space left")
        disk.fill()
        before = sum(yard.engine.status().counts.values())
        for _ in range(3):
            with pytest.raises(StoreError, match=r"no space left .* nothing was stored"):
                yard.engine.enqueue([command("x" * 9000)])
        assert sum(yard.engine.status().counts.values()) == before
        disk.free()
        made += yard.engine.enqueue([command("true", cwd=str(tmp_path))])
        yard.completes(*(each.id for each in made))
        assert check_queue(yard.engine, acknowledged=[each.id for each in made]) == []
        assert yard.engine.store.dialect.problems() == []  # type: ignore[attr-defined]
        assert pool.stop() == 0


def test_a_queue_on_a_full_or_read_only_disk_is_refused_in_one_line(tmp_path: Path) -> None:
    """By processes of their own: one that had it open would keep the disk busy."""
    path = tmp_path / "queue.db"

    def refusal() -> str:
        with Child(programs.ONCE, path) as client:
            code, out, err = client.end()
        assert (code, len(out.splitlines()), err) == (1, 1, "")
        return out.strip()

    with SmallDisk(str(tmp_path), 1) as disk:
        disk.fill()
        assert "no space left" in refusal()
        disk.free()
        with Child(programs.BRITTLE, path) as client:  # killed, so that all files of an open queue are there
            client.line()
            client.kill()
        disk.lock()
        assert refusal() == f"{path} is on a read-only file system; mount it for writing"


def test_a_backup_onto_a_full_disk_says_so_and_leaves_nothing_there(
    path: str, opened: Callable[[str], Engine], tmp_path: Path
) -> None:
    engine = opened(path)
    engine.enqueue([command("x" * 60_000) for _ in range(40)])
    place = tmp_path / "disk"
    place.mkdir()
    with SmallDisk(str(place), 1):
        with pytest.raises(StoreError, match=rf"no space left for {place}/copy.db; nothing was stored"):
            list(engine.store.dialect.backup(str(place / "copy.db")))  # type: ignore[attr-defined]
        assert not list(place.glob("copy.db*"))
