"""The one place where what the database gave up is tried again: conflicts, deadlocks, lost connections."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..errors import Undone

P = ParamSpec("P")
R = TypeVar("R")

TRIES = 30
LONGEST_S = 0.25


def repeated(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, begun again from its first line each time that its transaction was undone. It must be one transaction.

    Whoever met in a conflict comes back at different times: the pause grows, and its length is a matter of chance.
    """

    @wraps(verb)
    def until_done(*args: P.args, **kwargs: P.kwargs) -> R:
        for number in range(TRIES):
            try:
                return verb(*args, **kwargs)
            except Undone:
                if number == TRIES - 1:
                    raise
            time.sleep(random.uniform(0, min(LONGEST_S, 0.002 * 2**number)))
        raise AssertionError("unreachable")

    return until_done
