"""Times as people write them: `90s`, `2h`, `2031-05-01T09:00:00+02:00`."""

from __future__ import annotations

import re

from ..errors import InvalidInput

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|min|[smhdw])")


def seconds(text: str, what: str) -> float:
    """`90`, `90s`, `1h30m`, `2d` as seconds."""
    plain = text.strip().lower().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", plain, re.ASCII):
        return float(plain)
    parts = _PART.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain or not plain.isascii():
        raise InvalidInput(f"{what} {text!r}: write a duration such as 90s, 15m, 2h, 1d or 1h30m")
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
