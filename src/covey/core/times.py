"""Times as people write them: `90s`, `2h`, `2031-05-01T09:00:00+02:00`; and read them: `3s`, `2m 5s`, `in 4h`."""

from __future__ import annotations

import re

from ..errors import InvalidInput

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_WORDS = {"milliseconds?|msecs?": "ms", "seconds?|secs?": "s", "minutes?|mins?": "m", "hours?|hrs?": "h"}
_WORDS |= {"days?": "d", "weeks?": "w"}
_WORD = re.compile("|".join(rf"(?P<{unit}>(?<=[\d ])(?:{words})\b)" for words, unit in _WORDS.items()))
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|min|[smhdw])")


def seconds(text: str, what: str) -> float:
    """`90`, `90s`, `1h30m`, `2d`, `3 hours`, `1 day and 2 hours` as seconds."""
    plain = text.strip().lower()
    if not plain.isascii():
        plain = "?"
    plain = _WORD.sub(lambda word: str(word.lastgroup), plain).replace(" and ", " ").replace(", ", " ").replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", plain, re.ASCII):
        return float(plain)
    parts = _PART.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain or not plain.isascii():
        raise InvalidInput(f"{what} {text!r}: write a duration such as 90s, 15m, 2h, 1d, 1h30m or '3 hours'")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def moment(text: str, what: str) -> int:
    """An RFC 3339 time with a zone as microseconds since the epoch."""
    from datetime import UTC, datetime, timedelta

    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(f"{what} {text!r}: write a time with its zone, as in 2031-05-01T09:00:00+02:00") from None
    if found.tzinfo is None:
        raise InvalidInput(
            f"{what} {text!r} has no zone, and this machine's may not be the worker's; "
            f"add one, as in {found.isoformat()}Z or {found.isoformat()}+02:00"
        )
    return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


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
