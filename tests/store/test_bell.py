"""The bell: a hint between processes that costs nothing when nobody listens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.engine.engine import Engine
from covey.store.sqlite.bell import Bell
from covey.testing import until
from tests.kit import HandPool, command
from tests.kit.faults import Child


def sockets(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


@pytest.mark.parametrize("depth", [0, 5])
def test_a_ring_is_heard_whatever_the_length_of_the_path(tmp_path: Path, depth: int) -> None:
    """Socket paths end at 107 bytes; directories do not."""
    directory = tmp_path.joinpath(*(["d" * 60] * depth), "bells")
    bell = Bell(str(directory))
    ear, other = bell.listen("pool"), bell.listen("end")
    assert not ear.wait(0)
    Bell.ring(bell, "pool")
    assert ear.wait(60)
    assert not ear.wait(0)  # many rings are one
    assert not other.wait(0)  # and only for those who were meant
    ear.close()
    other.close()
    assert sockets(directory) == []
    bell.close()


def test_an_engine_works_on_a_path_beyond_a_socket_s_limit(tmp_path: Path, opened: Callable[[str], Engine]) -> None:
    place = tmp_path.joinpath(*(["d" * 100] * 3))
    place.mkdir(parents=True)
    path = str(place / "queue.db")
    engine = opened(path)
    pool = HandPool(engine)
    engine.wait(pool.id, None, 0)
    opened(path).enqueue([command()])
    assert until(lambda: engine.wait(pool.id, None, 0.5), 10)


def test_ringing_a_full_ear_neither_blocks_nor_fails(tmp_path: Path) -> None:
    bell = Bell(str(tmp_path))
    ear = bell.listen("pool")
    for _ in range(5000):
        bell.ring("pool")
    assert ear.wait(1)
    assert not ear.wait(0)
    ear.close()
    bell.close()


def test_the_socket_of_a_killed_listener_is_cleared_by_the_next_ring(tmp_path: Path) -> None:
    code = """
import sys
from covey.store.sqlite.bell import Bell
ear = Bell(sys.argv[1]).listen("pool")
print("listening", flush=True)
print(ear.wait(60), flush=True)
sys.stdin.readline()
"""
    bell = Bell(str(tmp_path))
    with Child(code, tmp_path) as child:
        assert child.line() == "listening"
        bell.ring("pool")
        assert child.line() == "True"  # heard across processes
        child.kill()
    assert len(sockets(tmp_path)) == 1
    bell.ring("pool")
    assert sockets(tmp_path) == []
    bell.close()


def test_wake_reaches_an_ear_without_a_ring(tmp_path: Path) -> None:
    bell = Bell(str(tmp_path))
    ear = bell.listen("pool")
    ear.wake()
    assert ear.wait(60)
    assert not ear.wait(0)
    ear.close()
    bell.close()


def test_a_bell_whose_directory_was_removed_is_silent(tmp_path: Path) -> None:
    bell = Bell(str(tmp_path / "bells"))
    os.rmdir(tmp_path / "bells")
    bell.ring("pool")
    bell.close()


def test_the_bell_rings_after_the_commit_never_before(path: str, opened: Callable[[str], Engine]) -> None:
    writer, reader = opened(path), opened(path)
    pool = HandPool(reader)
    reader.wait(pool.id, None, 0)
    with writer.store.transaction():
        writer.store.ask("set_config", key="k", value="v")
        assert not reader.wait(pool.id, None, 0)
    writer.enqueue([command()])
    assert until(lambda: reader.wait(pool.id, None, 0.5), 10)
    assert len(pool.claim(1)) == 1  # whoever was rung for sees it
