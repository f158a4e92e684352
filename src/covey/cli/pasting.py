"""Advice that can be pasted: it names the queue that it is about, where `covey` alone would find another one here."""

from __future__ import annotations

import os

from .open_queue import named


def pasteable(text: str, db: str | None) -> str:
    """The same, with what each `covey …` in it needs: at its beginning, or in backticks."""
    if (flags := _flags(db)) is None:
        return text
    import re

    # `db copy` names both queues itself.
    told = re.sub(r"(^|`)covey (?=[a-z])(?!db copy)", lambda found: f"{found[1]}covey {flags} ", text)
    path = os.environ.get("COVEY_TOKEN_FILE")
    if path and "://" in flags:
        from ..engine.advice import quoted

        told = re.sub(r"(covey [^`]*?worker start)\b", lambda found: f"{found[1]} --token-file {quoted(path)}", told)
    return told


def _flags(db: str | None) -> str | None:
    if (given := named(db)) is None:
        return None
    from ..connection import absolute
    from ..engine.advice import quoted
    from ..errors import CoveyError
    from ..open import find_database, place, shown

    try:
        if place(given) == place(find_database()):
            return None
    except (CoveyError, OSError, RuntimeError, ValueError):
        pass  # nothing is found here without a name
    return f"--db {quoted(shown(absolute(given)))}"
