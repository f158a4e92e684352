"""Named statements asked of a database: what the parts of a Store stand on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from . import statements
from .dialect import STILL_S, Database, Listener

Tuples = list[tuple[Any, ...]]


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Asking:
    def __init__(self, dialect: Database) -> None:
        self.dialect = dialect
        self._sql = dict(statements.load(dialect.name, dialect.prefix))

    def transaction(
        self, *, marked: bool = True, alone: bool = False, still_s: float = STILL_S
    ) -> AbstractContextManager[None]:
        return self.dialect.transaction(marked=marked, alone=alone, still_s=still_s)

    def snapshot(self) -> AbstractContextManager[None]:
        return self.dialect.snapshot()

    def ask(self, statement: str, /, **params: Any) -> Tuples:
        """The rows that the named statement answers."""
        return self.dialect.query(self._sql[statement], params)

    def value(self, statement: str, /, **params: Any) -> Any:
        """The first column of the first row, or None."""
        rows = self.ask(statement, **params)
        return rows[0][0] if rows else None

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | tuple[Any, ...]]) -> None:
        self.dialect.execute_many(self._sql[name], rows)

    def raw(self, sql: str, **params: Any) -> Tuples:
        """A statement of the caller's own, {jobs} and the like written out: for checks and tests."""
        return self.dialect.query(statements.written_out(sql, self.dialect.name, self.dialect.prefix), params)

    def ring(self, who: str) -> None:
        self.dialect.ring(who)

    def listen(self, who: str) -> Listener:
        return self.dialect.listen(who)

    # ── locks, where writers run beside each other ──────────────────────────────────────────────────────────────────

    def lock_queues(self) -> None:
        """The queues whose claims and ends must come one after the other."""

    def lock_trees(self, ids: Sequence[int]) -> None:
        """The roots of these jobs."""

    def lock_families(self, ids: Sequence[int]) -> None:
        """The roots of those among these jobs that are not alone in the world."""
