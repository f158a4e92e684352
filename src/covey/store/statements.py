"""Named SQL: the shared file, then the dialect's overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_TABLE = re.compile(r"\{(\w+)\}")
_MACRO = re.compile(r"\{(\w+):(\w+)\}")

# A list travels as one JSON text: `{in_ids:ids}` is true of every number in :ids, `{in_texts:keys}` of every string.
MACROS: dict[str, dict[str, str]] = {
    "sqlite": {
        "in_ids": "in (select value from json_each(:{}))",
        "in_texts": "in (select value from json_each(:{}))",
    },
    "postgres": {
        "in_ids": "= any (translate(:{}, '[]', '{{}}')::bigint[])",
        "in_texts": "= any (array(select json_array_elements_text(:{}::json)))",
    },
}


@cache
def load(dialect: str, prefix: str = "") -> Mapping[str, str]:
    """Statement texts by name, comments stripped, {table} and the lists written out."""
    room = files(__package__)
    statements: dict[str, str] = {}
    for file in (room / "queries.sql", room / dialect / "statements.sql"):
        parts = _NAME.split(file.read_text())
        for key, body in zip(parts[1::2], parts[2::2], strict=True):
            lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
            statements[key] = written_out("\n".join(lines).strip(), MACROS[dialect], prefix)
    return statements


def written_out(sql: str, macros: Mapping[str, str], prefix: str) -> str:
    sql = _MACRO.sub(lambda match: macros[match[1]].format(match[2]), sql)
    return _TABLE.sub(lambda match: prefix + match[1], sql)
