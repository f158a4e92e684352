"""A queue in a SQLite file: whether it keeps what it promises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .check_result import Finding, bad, ok, warn

if TYPE_CHECKING:
    from ...store.sqlite.database import Sqlite

LARGE_WAL = 256 << 20


def look(dialect: Sqlite) -> Iterator[Finding]:
    mode = str(dialect.pragma("journal_mode"))
    if mode in ("wal", "memory"):
        yield ok("journal", mode)
    else:
        yield bad("journal", f"{mode} instead of wal", "close every other program that uses the file")
    yield _durability(int(dialect.pragma("synchronous")))
    if dialect.path:
        yield _wal(dialect.path + "-wal")


def _durability(level: int) -> Finding:
    if level >= 2:
        return ok("durability", "full: an acknowledged job survives a power cut")
    text = "normal: a power cut may undo the last moments"
    return warn("durability", text, "if that is not what you want: `covey config set durability full`")


def _wal(path: str) -> Finding:
    size = os.path.getsize(path) if os.path.exists(path) else 0
    if size > LARGE_WAL:
        return warn("wal file", f"{size >> 20} MiB", "some reader holds an old snapshot; find and end it")
    return ok("wal file", f"{size / (1 << 20):.1f} MiB")
