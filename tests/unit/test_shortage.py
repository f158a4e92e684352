"""A kill is put down to a lack of memory when the kernel's count says so, and only then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from covey.core.model import Report
from covey.pool.memory_kills import MemoryKills
from covey.system import cgroup

KILLED = "was killed by SIGKILL"


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """The kernel's count, as both versions write it."""
    path = tmp_path / "memory.events"
    path.write_text("low 0\noom 7\noom_kill 3\noom_group_kill 9\n")
    return path


def kill(events: Path) -> None:
    events.write_text(f"oom_kill {cgroup.killed_for_memory(str(events)) + 1}\n")


def test_a_worker_that_was_killed_while_the_count_rose_ran_out_of_memory(events: Path) -> None:
    kills = MemoryKills(str(events))
    assert kills.of_worker(KILLED) == KILLED
    kill(events)
    assert kills.of_worker("exited with code 1") == "exited with code 1"
    assert kills.of_worker(KILLED) == f"{KILLED}: out of memory"
    assert kills.of_worker(KILLED) == KILLED  # one rise explains one kill


def test_a_command_that_was_killed_while_the_count_rose_ran_out_of_memory(events: Path) -> None:
    kills = MemoryKills(str(events))
    kill(events)
    killed, failed = (Report(1, 1, "failure", exit_code=code, error=f"exit code {code}") for code in (137, 1))
    for report in (failed, killed):
        kills.of_command(report)
    assert (failed.error, killed.error) == ("exit code 1", "exit code 137: out of memory")


def test_a_kill_of_long_ago_explains_nothing(events: Path) -> None:
    kills = MemoryKills(str(events))
    kill(events)
    now = time.monotonic()
    kills.look(now + 2)
    assert MemoryKills(str(events)).of_worker(KILLED) == KILLED
    kills.look(now + 4)
    assert kills.of_worker(KILLED) == KILLED


def test_a_look_between_the_kill_and_the_news_of_it_hides_nothing(events: Path) -> None:
    kills = MemoryKills(str(events))
    kill(events)
    kills.look(time.monotonic() + 2)
    assert kills.of_worker(KILLED) == f"{KILLED}: out of memory"


def test_without_a_control_group_nothing_is_claimed(tmp_path: Path) -> None:
    assert MemoryKills(None).of_worker(KILLED) == KILLED
    assert MemoryKills(str(tmp_path / "absent")).of_worker(KILLED) == KILLED
