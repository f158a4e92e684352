"""The room that reads the world."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from covey import env
from covey.testing import until
from tests.kit.faults import Child, failpoint


def test_a_process_is_known_by_its_pid_and_its_start() -> None:
    ticks = env.start_ticks(os.getpid())
    assert ticks is not None
    assert env.alive(os.getpid(), ticks)
    assert not env.alive(os.getpid(), ticks + 1)  # the pid was used again
    assert env.start_ticks(2**22 + 1) is None


def test_a_zombie_counts_as_gone() -> None:
    with Child("import sys; sys.stdin.readline()") as child:
        ticks = env.start_ticks(child.pid)
        assert ticks is not None
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: not env.alive(child.pid, ticks), 10, "the killed child is gone, reaped or not")


def test_a_failpoint_does_nothing_unless_armed() -> None:
    env.failpoint("unit.point")
    with failpoint("unit.point", "raise"):
        with pytest.raises(OSError, match=r"unit\.point"):
            env.failpoint("unit.point")
        env.failpoint("unit.other")
    env.failpoint("unit.point")


def test_a_failpoint_that_strikes_once_lets_the_second_pass(tmp_path: Path) -> None:
    with failpoint("unit.point", f"once:{tmp_path / 'struck'}:raise"):
        with pytest.raises(OSError):
            env.failpoint("unit.point")
        env.failpoint("unit.point")


def test_the_boot_names_one_pid_namespace() -> None:
    assert env.boot() == env.boot()
    assert ":" in env.boot()


def test_database_ids_differ() -> None:
    assert len({env.new_database_id() for _ in range(1000)}) == 1000
