"""Idle: what a pool of eight workers costs while there is nothing to do, all of its processes together."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import psutil

from . import ground
from .report import Figure

NAME = "idle"


def run(quick: bool) -> Iterator[Figure]:
    seconds = 5.0 if quick else 20.0
    with ground.scratch() as place:
        url = ground.new_queue(place)
        with ground.Pool(url, count=8) as pool:
            pool.until_ready(url, 16)  # eight for commands, eight for functions
            time.sleep(3)
            processes = [pool.process.pid, *(p.pid for p in psutil.Process(pool.process.pid).children(recursive=True))]
            before, began = cpu_ns(processes), time.monotonic()
            time.sleep(seconds)
            used, took = cpu_ns(processes) - before, time.monotonic() - began
    percent = used / took / 1e7
    yield Figure(
        NAME, f"8 workers, {len(processes)} processes, {took:.0f} s", percent, 1, "% core", "one per cent of a core",
        ("≤", 0.5),
    )  # fmt: skip


def cpu_ns(processes: list[int]) -> int:
    """Nanoseconds on a CPU, of every thread: the scheduler's own count, finer than clock ticks."""
    total = 0
    for pid in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat") as stat:
                    total += int(stat.read().split()[0])
    return total
