"""What was found, in words, and what to do about it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warn", "bad"]


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    text: str
    advice: str | None = None


def ok(check: str, text: str) -> Finding:
    return Finding(check, "ok", text)


def warn(check: str, text: str, advice: str) -> Finding:
    return Finding(check, "warn", text, advice)


def bad(check: str, text: str, advice: str) -> Finding:
    return Finding(check, "bad", text, advice)


def some(names: list[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
