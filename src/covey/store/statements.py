"""Named SQL: the shared file, then the dialect's overrides."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_TABLE = re.compile(r"\{(\w+)\}")


def load(dialect: str, prefix: str = "") -> dict[str, str]:
    """Statement texts by name, comments stripped, {table} written out."""
    room = files(__package__)
    statements: dict[str, str] = {}
    for name in ("queries.sql", f"{dialect}.sql"):
        parts = _NAME.split((room / name).read_text())
        for key, body in zip(parts[1::2], parts[2::2], strict=True):
            lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
            statements[key] = _TABLE.sub(lambda match: prefix + match[1], "\n".join(lines).strip())
    return statements
