"""Waiting for something to become true: the only waiting that tests do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(predicate: Callable[[], T | None], timeout_s: float, what: str = "") -> T:
    """The predicate's first true value; AssertionError when none came in time."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.0005
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what or predicate}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
    return value
