"""Why Covey loses where it loses: by family, measure and peer, the most particular first."""

from __future__ import annotations

ANY = "*"
UNKNOWN = "**no reason is known**"

REASONS: dict[tuple[str, str, str], str] = {}


def reason(family: str, measure: str, peer: str) -> str:
    for key in ((family, measure, peer), (family, measure, ANY), (ANY, measure, ANY)):
        if key in REASONS:
            return REASONS[key]
    return UNKNOWN
