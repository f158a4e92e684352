"""A23, A24: a disk that is full or fails. The calls of the kernel are made to fail by strace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from covey.engine.engine import Engine
from covey.testing import check_queue
from covey.testing.faults import Child, strace

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
def test_a23_a_full_disk_is_an_error_to_the_caller_leaves_no_half_rows_and_passes(
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


def test_a24_a_failed_fsync_is_no_acknowledgement_and_the_next_one_works(
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
