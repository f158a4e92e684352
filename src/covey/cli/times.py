"""Times as people read them: `3s`, `2m 5s`, `in 4h`."""

from __future__ import annotations

from ..core.times import UNITS


def span(seconds: float) -> str:
    """A duration in one or two units: `3s`, `2m 5s`, `4h`, `12d`."""
    if seconds < 0:
        return "-" + span(-seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    for unit, size, below, smaller in (("d", 86400, 1e18, "h"), ("h", 3600, 86400, "m"), ("m", 60, 3600, "s")):
        if size <= seconds < below:
            whole, rest = divmod(int(seconds), size)
            rest //= UNITS[smaller].__int__()
            return f"{whole}{unit}" + (f" {rest}{smaller}" if rest and whole < 10 else "")
    return f"{seconds:.0f}s"


def age(at: str | None, now: float) -> str:
    """How long ago (or `in 5m`) an RFC 3339 time is."""
    if at is None:
        return ""
    from datetime import datetime

    gone = now - datetime.fromisoformat(at).timestamp()
    return span(gone) if gone >= 0 else "in " + span(-gone)
