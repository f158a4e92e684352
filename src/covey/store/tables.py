"""Whole tables, in pages by their primary keys: out of one store, into another.

A page is bounded in rows and in bytes, so a million jobs, or a thousand with a megabyte of output each, never meet in
memory. Which columns there are is asked of the database: one that a migration adds is copied like the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .ready import Tuples
from .store import Store

ROWS = 2000
BYTES = 16 << 20


class Table(NamedTuple):
    """``heavy``: columns that may be large."""

    name: str
    key: tuple[str, ...]
    heavy: tuple[str, ...] = ()


# Parents before their children: across tables by this order, within `jobs` by the id.
TABLES = (
    Table("config", ("key",)),
    Table("queues", ("name",)),
    Table("tokens", ("id",)),
    Table("jobs", ("id",), heavy=("labels", "info", "children_info", "error")),
    Table("payloads", ("job_id",), heavy=("args",)),
    Table("results", ("job_id",), heavy=("body",)),
    Table("attempts", ("job_id", "fence"), heavy=("stdout", "stderr", "detail", "error")),
    Table("edges", ("job_id", "waits_for")),
    Table("callers", ("job_id",)),
    Table("events", ("id",), heavy=("text",)),
)
# What belongs to the place and not to the queue: its identity is set, nobody works (so no run has staged anything),
# duties begin anew, and who sent a request there did so for that place.
LEFT_OUT = frozenset({"meta", "pools", "workers", "duties", "receipts", "requests", "staged"})
NUMBERED = ("jobs", "pools", "events", "tokens")  # their ids are never given twice, also not in the new place


class Rows:
    """The tables of one store."""

    def __init__(self, store: Store, *, most: int = ROWS, most_bytes: int = BYTES) -> None:
        self._store, self._most, self._most_bytes = store, most, most_bytes

    def columns(self, table: Table) -> tuple[str, ...]:
        return tuple(row[0] for row in self._store.ask("columns", table=self._name(table.name)))

    def count(self, table: Table) -> int:
        return int(self._ask(f"select count(*) from {self._name(table.name)}")[0][0])

    def last_key(self, table: Table) -> tuple[Any, ...] | None:
        """The highest key there is: how far a copy into this table has come."""
        down = ", ".join(f"{column} desc" for column in table.key)
        found = self._ask(f"select {', '.join(table.key)} from {self._name(table.name)} order by {down} limit 1")
        return found[0] if found else None

    def pages(self, table: Table, columns: Sequence[str], after: tuple[Any, ...] | None) -> Iterator[Tuples]:
        """All rows behind the key ``after``, in the order of their keys."""
        places = [columns.index(column) for column in table.key]
        named = ", ".join(f'"{column}"' for column in columns)
        while rows := self._page(table, named, after):
            yield rows
            after = tuple(rows[-1][place] for place in places)

    def add(self, table: Table, columns: Sequence[str], rows: Tuples) -> None:
        named, values = ", ".join(f'"{column}"' for column in columns), ", ".join(f":{column}" for column in columns)
        self._store.dialect.execute_many(f"insert into {self._name(table.name)} ({named}) values ({values})", rows)

    def clear(self) -> None:
        """No row is left of what a copy brings."""
        for table in reversed(TABLES):
            self._ask(f"delete from {self._name(table.name)}")

    def last_ids(self) -> dict[str, int]:
        """Of each numbered table the last number that was given, be its row still there or not."""
        return {name: int(self._store.value("last_id", table=self._name(name)) or 0) for name in NUMBERED}

    def set_last_ids(self, last: dict[str, int]) -> None:
        for name, id in last.items():
            highest = self._ask(f"select coalesce(max(id), 0) from {self._name(name)}")[0][0]
            self._store.ask("set_last_id", table=self._name(name), last=max(id, highest))

    def _page(self, table: Table, named: str, after: tuple[Any, ...] | None) -> Tuples:
        behind, params = _compared(table, ">", "after", after)
        order = f"order by {', '.join(table.key)} limit {self._most}"
        upto = self._weigh(table, behind, order, params) if table.heavy else None
        until, more = _compared(table, "<=", "upto", upto)
        where = " and ".join(filter(None, (behind, until)))
        return self._ask(f"select {named} from {self._name(table.name)} {_where(where)} {order}", params | more)

    def _weigh(self, table: Table, behind: str, order: str, params: dict[str, Any]) -> tuple[Any, ...] | None:
        """The key of the last row that still fits into a page; at least one row does."""
        weight = " + ".join(f"coalesce(octet_length({column}), 0)" for column in table.heavy)
        key = ", ".join(table.key)
        left, upto = self._most_bytes, None
        for *found, size in self._ask(
            f"select {key}, {weight} from {self._name(table.name)} {_where(behind)} {order}", params
        ):
            left -= size
            if upto is not None and left < 0:
                break
            upto = tuple(found)
        return upto

    def _name(self, table: str) -> str:
        return self._store.dialect.prefix + table

    def _ask(self, sql: str, params: dict[str, Any] | None = None) -> Tuples:
        return self._store.dialect.query(sql, params or {})


def _compared(table: Table, sign: str, name: str, key: tuple[Any, ...] | None) -> tuple[str, dict[str, Any]]:
    """The whole key compared with another, and what to bind; nothing without one."""
    if key is None:
        return "", {}
    params = {f"{name}_{place}": value for place, value in enumerate(key)}
    return f"({', '.join(table.key)}) {sign} ({', '.join(f':{each}' for each in params)})", params


def _where(condition: str) -> str:
    return f"where {condition}" if condition else ""
