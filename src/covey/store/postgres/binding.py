"""Statements as psycopg wants them: placeholders, many rows in one INSERT, or a COPY."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from operator import itemgetter
from typing import Any

import psycopg
from msgspec import Struct

_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_SPECIAL = re.compile(r"['\\\0]")  # what a string in quotes cannot have in it as it is
_INSERT = re.compile(r"insert into (\S+) \(([^)]*)\)\s*values \(([^)]*)\)\s*(.*)", re.DOTALL)


@lru_cache(maxsize=512)
def placeholders(sql: str) -> str:
    """:name as %(name)s."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))


@lru_cache(maxsize=512)
def _parted(text: str) -> tuple[list[str], list[str]]:
    """What stands around the placeholders, and the names in them."""
    parts = _PLACEHOLDER.split(text)
    return [part.replace("%%", "%") for part in parts[0::2]], parts[1::2]


def written(text: str, params: Mapping[str, Any] | tuple[Any, ...]) -> str | None:
    """The text with its values in it, as psycopg would write them; None if one needs psycopg to be written.

    A caller waits meanwhile, and psycopg takes several times as long for the two dozen values of an enqueue.
    """
    if isinstance(params, tuple):
        return None
    around, names = _parted(text)
    told = [around[0]]
    for name, following in zip(names, around[1:], strict=True):
        value = params[name]
        kind = type(value)
        if kind is str and not _SPECIAL.search(value):
            told.append(f"'{value}'")
        elif value is None:
            told.append("NULL")
        elif kind is int or (kind is float and isfinite(value)):
            told.append(f" {value!r}")  # the space keeps a minus from becoming a comment
        elif kind is bool:
            told.append("true" if value else "false")
        else:
            return None
        told.append(following)
    return "".join(told)


@lru_cache(maxsize=512)
def answers(sql: str) -> bool:
    """Whether the statement has rows to tell. One that only writes can wait for company."""
    return not re.match(r"\s*(insert|update|delete)\b", sql) or re.search(r"\breturning\b", sql) is not None


class Insert(Struct, frozen=True):
    """An INSERT of parameters only. ``names``: one for each column; ``order``: as they are first mentioned."""

    table: str
    columns: str
    names: tuple[str, ...]
    order: tuple[str, ...]
    tail: str

    @property
    def copy(self) -> bytes:
        return f"copy {self.table} ({self.columns}) from stdin".encode()

    def pick(self, like: Mapping[str, Any] | tuple[Any, ...]) -> Callable[[Any], Sequence[Any]]:
        """From a row as it is bound (by name, or by place like SQLite's) to the values of all columns."""
        if isinstance(like, tuple):
            return itemgetter(*(self.order.index(name) for name in self.names))
        return itemgetter(*self.names)

    def text(self, cursor: psycopg.ClientCursor[Any], rows: Sequence[Any]) -> str:
        pick = self.pick(rows[0])
        values = b"(" + b", ".join([b"%s"] * len(self.names)) + b")"
        listed = ", ".join(cursor.mogrify(values, pick(row)) for row in rows)
        return f"insert into {self.table} ({self.columns}) values {listed} {self.tail}"


@lru_cache(maxsize=64)
def insert_of(sql: str) -> Insert | None:
    """What the statement inserts; None if it is no such INSERT."""
    found = _INSERT.fullmatch(sql.strip())
    if found is None:
        return None
    table, columns, values, tail = found.groups()
    names = [value.strip().removeprefix(":") for value in values.split(",")]
    return Insert(table, columns, tuple(names), tuple(dict.fromkeys(names)), tail)
