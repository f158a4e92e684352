"""How many workers suit this machine: one per CPU that we may use, as long as memory suffices for them."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator

WORKER_FILES = 5  # descriptors that a pool has for each worker
OWN_FILES = 24  # that it may still need for itself: the queue, a listener, what is looked at in /proc
WORKER_BYTES = 128 << 20  # what a worker is expected to need beside what it shares


def automatic(shares: int = 1) -> int:
    """How many workers each of so many types should have."""
    return fitting(_cpus(), _memory(), shares)


def fitting(cpus: float, memory: int | None, shares: int = 1) -> int:
    """At least one, whatever the machine is like."""
    fit = int(cpus) if memory is None else min(int(cpus), memory // WORKER_BYTES)
    return max(1, fit // shares)


def most_workers() -> tuple[int, int]:
    """(How many workers this process may have descriptors for, its limit of those.)"""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (limit - len(os.listdir("/proc/self/fd")) - OWN_FILES) // WORKER_FILES, limit


def within(counts: dict[str, int], most: int, workers: Callable[[dict[str, int]], int]) -> dict[str, int]:
    """The counts, the largest made smaller until there are no more than so many workers; each keeps one."""
    counts = dict(counts)
    while workers(counts) > most and max(counts.values()) > 1:
        counts[max(counts, key=counts.__getitem__)] -= 1
    return counts


def _cpus() -> float:
    """What the scheduler and the control group let us use."""
    cpus: float = len(os.sched_getaffinity(0))
    for directory in _groups():
        try:
            with open(f"{directory}/cpu.max") as file:
                quota, period = file.read().split()
            if quota != "max":
                cpus = min(cpus, int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return cpus


def _memory() -> int | None:
    """Bytes that new processes could have; None if the machine does not say."""
    found = []
    try:
        with open("/proc/meminfo") as file:
            found += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    for directory in _groups():
        try:
            with open(f"{directory}/memory.max") as file:
                limit = file.read().strip()
            with open(f"{directory}/memory.current") as file:
                found += [] if limit == "max" else [max(0, int(limit) - int(file.read()))]
        except (OSError, ValueError):
            continue
    return min(found, default=None)


def _groups() -> Iterator[str]:
    """The directories of our control group and those above it that may limit us (version 2)."""
    try:
        with open("/proc/self/cgroup") as file:
            path = next(line.strip()[3:] for line in file if line.startswith("0::"))
    except (OSError, StopIteration):
        return
    while True:
        yield f"/sys/fs/cgroup{path.rstrip('/')}"
        if path in ("", "/"):
            return
        path = os.path.dirname(path)
