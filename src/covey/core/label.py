"""Who ran a job, in one text: made once in a worker's life, so that a report costs no more for it."""

from __future__ import annotations

BETWEEN = "\t"


def suffix(pool: str, host: str) -> str:
    """What follows the names of a pool's workers."""
    return "".join(f"{BETWEEN}{part.replace(BETWEEN, ' ')}" for part in (pool, host))


def parts(label: str | None) -> tuple[str | None, str | None, str | None]:
    """(worker, pool, host); of a label that says no more than the worker, that."""
    worker, _, rest = (label or "").partition(BETWEEN)
    pool, _, host = rest.partition(BETWEEN)
    return worker or None, pool or None, host or None
