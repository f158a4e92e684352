"""How many workers suit this machine: one per CPU that we may use, as long as memory suffices for them."""

from __future__ import annotations

import os
from collections.abc import Iterator

WORKER_BYTES = 128 << 20  # what a worker is expected to need beside what it shares


def automatic(shares: int = 1) -> int:
    """How many workers each of so many types should have."""
    return fitting(_cpus(), _memory(), shares)


def fitting(cpus: float, memory: int | None, shares: int = 1) -> int:
    """At least one, whatever the machine is like."""
    fit = int(cpus) if memory is None else min(int(cpus), memory // WORKER_BYTES)
    return max(1, fit // shares)


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
