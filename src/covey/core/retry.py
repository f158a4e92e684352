"""When a failed job is tried again."""

from __future__ import annotations

import math
from random import Random


def backoff_s(attempt: int, *, base: float, cap_s: float, jitter: bool, rng: Random) -> float:
    """Seconds to wait after failed run number ``attempt``: ``min(base ** attempt, cap)``; jitter: in (0, that]."""
    # In logarithms, because base ** attempt leaves the floats behind long before attempt 100,000.
    if base <= 1:
        delay = min(base, cap_s)
    elif attempt * math.log(base) >= math.log(max(cap_s, 1e-9)):
        delay = cap_s
    else:
        delay = base**attempt
    return delay * (1.0 - rng.random()) if jitter else delay
