"""Many waiting jobs made from one: what a queue wrote for a job, written again with other ids.

A queue that takes a millisecond for an enqueue would need a quarter of an hour for a backlog of a million.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CHUNK = 5_000


def in_redis(client: Any, count: int, write: Callable[[Any, str], object]) -> None:
    """``write(pipe, id)`` has been called for so many new ids. The client is a blocking one."""
    for first in range(0, count, CHUNK):
        with client.pipeline(transaction=False) as pipe:
            for number in range(first, min(count, first + CHUNK)):
                write(pipe, f"00000000-0000-4000-8000-{number:012x}")
            pipe.execute()


def in_postgres(dsn: str, table: str, count: int, new_id: str | None = None) -> None:
    """So many rows like the one that is there; ``new_id`` says what makes an id, where the table does not."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as db:
        found = db.execute("select attname from pg_attribute where attrelid = %s::regclass and attnum > 0"
                           " and not attisdropped and attgenerated = ''", (table,))  # fmt: skip
        names = [name for (name,) in found if name != "id"]
        ids, made = ("id, ", f"{new_id}, ") if new_id else ("", "")
        listed = ", ".join(names)
        db.execute(
            f"insert into {table} ({ids}{listed}) select {made}{listed} from {table}, generate_series(2, %s)".encode(),
            (count,),
        )
        db.execute("analyze")


def count_in_postgres(dsn: str, query: str) -> int:
    import psycopg

    with psycopg.connect(dsn) as db:
        return int(db.execute(query.encode()).fetchone()[0])  # type: ignore[index]
