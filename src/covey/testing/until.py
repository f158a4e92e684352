"""Waiting for something to become true: the only waiting that tests do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(predicate: Callable[[], T | None], timeout_s: float, what: str = "") -> T:
    """The predicate's first true value; AssertionError when none came in time.

    The time is one of an idle machine: with much to do it may take longer, by `slack`.
    """
    began = time.monotonic()
    pause_s = 0.0005
    while not (value := predicate()):
        took_s = time.monotonic() - began
        if took_s > timeout_s and took_s > timeout_s * slack():
            raise AssertionError(f"not within {timeout_s:g} s ({took_s:.1f} s on this machine): {what or predicate}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
    return value


def slack() -> float:
    """How many times as long as on an idle machine something may take now: by how many want to run on each processor.

    At least twice: the load of the last minute says nothing of the last second.
    """
    with open("/proc/loadavg") as file:
        average, _, _, running, _ = file.read().split()
    return max(2.0, 3 * max(float(average), int(running.split("/")[0])) / (os.cpu_count() or 1))
