"""A queue's tables on a server looked after: their indexes, their size, dead rows, old receipts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import Refused

if TYPE_CHECKING:
    from .database import Postgres

RECEIPTS_LAST_S = 600.0  # far longer than anybody asks

FOLD = """with taken as (delete from {counted} returning queue, jobs, completed, dead, cancelled)
insert into {counted} select queue, sum(jobs), sum(completed), sum(dead), sum(cancelled) from taken group by queue"""


class PostgresUpkeep:
    stops_writers = False
    repair = "mend them, or restore a backup"

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def set_durability(self, durability: str) -> None:
        self._database.durable = durability == "full"

    def tidy(self) -> None:
        """Receipts for which nobody can ask any more are gone; what was counted in many rows is in one a queue."""
        database = self._database
        oldest = token_of(database.now() - int(RECEIPTS_LAST_S * 1e6), bytes(10))
        database.query(f"delete from {database.prefix}receipts where token < :oldest", {"oldest": oldest})
        database.query(FOLD.format(counted=f"{database.prefix}counted"), {})

    def problems(self) -> list[str]:
        """Indexes that cannot be used; the server guards the rest by itself."""
        broken = self._database.query(
            "select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid "
            "join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = :schema and not (i.indisvalid and i.indisready)",
            {"schema": self._database.schema},
        )
        prefix = self._database.prefix
        return [f"the index {row[0]} is not valid; run `reindex index {prefix}{row[0]}`" for row in broken]

    def size(self) -> int:
        """Bytes of all tables with their indexes."""
        sizes = [f"pg_total_relation_size('{self._database.prefix}{table}')" for table in self._tables()]
        return int(self._database.query(f"select {' + '.join(sizes)}", {})[0][0])

    def vacuum(self) -> None:
        for table in self._tables():
            self._database.alone(f"vacuum (analyze) {self._database.prefix}{table}")

    def backup(self, target: str) -> Iterator[tuple[int, int]]:
        schema = self._database.schema
        raise Refused(f"{self._database.url} is a server's to back up; use pg_dump --schema={schema}")

    def _tables(self) -> list[str]:
        found = "select tablename from pg_tables where schemaname = :schema order by 1"
        return [row[0] for row in self._database.query(found, {"schema": self._database.schema})]


def token_of(micros: int, dice: bytes) -> str:
    """Names one transaction; later ones sort higher, so that old ones can be deleted by their names."""
    return f"{micros // 1000:012x}{dice.hex()}"
