"""Errors that are the same but for their numbers: one name for all of them."""

from __future__ import annotations

import re
from hashlib import sha256

_VARIES = (
    (re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "…"),
    (re.compile(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\""), "'…'"),
    (re.compile(r"(?:/[\w.@-]+){2,}"), "/…"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "…"),
    (re.compile(r"\d+"), "0"),
)
LONGEST = 200


def pattern(error: str) -> str:
    """The error's first line without what differs from one time to the next."""
    text = next((line.strip() for line in error.splitlines() if line.strip()), "")[: 5 * LONGEST]
    for varies, instead in _VARIES:
        text = varies.sub(instead, text)
    return text[:LONGEST]


def fingerprint(task: str, error: str) -> str:
    """A short name for the group of such errors of that task."""
    return sha256(f"{task}\n{pattern(error)}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
