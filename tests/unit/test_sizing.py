"""How many workers suit a machine."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from covey.system import resources
from covey.system.resources import WORKER_BYTES, automatic, fitting

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cpus", "memory", "shares", "workers"),
    [
        (8, 64 * GIB, 1, 8),  # one per CPU
        (8, None, 1, 8),  # a machine that does not say how much memory it has
        (8, 3 * WORKER_BYTES, 1, 3),  # as many as there is memory for
        (8, 4 * WORKER_BYTES - 1, 1, 3),
        (2.5, GIB, 1, 2),  # a quota of two and a half CPUs
        (0.5, GIB, 1, 1),  # never nobody
        (8, 0, 1, 1),
        (8, 64 * GIB, 3, 2),  # shared among types
        (2, 64 * GIB, 5, 1),
    ],
)
def test_one_per_cpu_as_long_as_memory_suffices(cpus: float, memory: int | None, shares: int, workers: int) -> None:
    assert fitting(cpus, memory, shares) == workers


def test_this_machine_gets_at_least_one_and_at_most_one_per_cpu() -> None:
    assert 1 <= automatic() <= len(os.sched_getaffinity(0))
    assert automatic(1000) == 1


def test_cpus_that_we_may_not_use_do_not_count() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert automatic() == 1
    finally:
        os.sched_setaffinity(0, before)


def group(place: Path, **files: str) -> str:
    """A control group's directory with these files; `_` stands for a dot."""
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name.replace("_", ".")).write_text(text)
    return str(place)


def test_the_tightest_control_group_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    groups = [
        group(tmp_path / "a", cpu_max="400000 100000\n", memory_max="max\n", memory_current="1\n"),
        group(
            tmp_path / "b", cpu_max="max 100000\n", memory_max=f"{GIB}\n", memory_current=f"{GIB - 2 * WORKER_BYTES}\n"
        ),
        str(tmp_path / "not there"),
    ]
    monkeypatch.setattr(resources, "_groups", lambda: iter(groups))
    assert resources._cpus() == 4
    assert resources._memory() == 2 * WORKER_BYTES
    assert automatic() == 2


def test_a_control_group_that_is_full_or_unreadable_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = group(tmp_path / "full", cpu_max="nonsense", memory_max="100\n", memory_current="200\n")
    monkeypatch.setattr(resources, "_groups", lambda: iter([full]))
    assert resources._memory() == 0
    assert resources._cpus() == len(os.sched_getaffinity(0))
    assert automatic() == 1


def test_a_group_is_looked_for_from_our_own_up_to_the_root() -> None:
    groups = list(resources._groups())
    assert len(groups) == len(set(groups))
    assert groups == [] or groups[-1].rstrip("/") == "/sys/fs/cgroup"
    assert all(below.startswith(above.rstrip("/")) for below, above in itertools.pairwise(groups))
