"""Forward migrations, numbered. One transaction each, so a crash in the middle leaves the step before."""

from __future__ import annotations

import re
from importlib.resources import files

from ..env import failpoint
from ..errors import SchemaError
from .dialect import Dialect


def steps(dialect: str) -> dict[int, str]:
    """Migration texts by number."""
    found: dict[int, str] = {}
    for entry in (files(__package__) / "schema").iterdir():
        if match := re.fullmatch(rf"(\d{{4}})\.{dialect}\.sql", entry.name):
            found[int(match[1])] = entry.read_text()
    return dict(sorted(found.items()))


def newest(dialect: str) -> int:
    return max(steps(dialect))


def current(db: Dialect) -> int:
    """The schema number in the database; 0 when it is empty. SchemaError when it is somebody else's."""
    tables = db.tables()
    if "meta" in tables and "jobs" in tables:
        found = db.query(f"select schema from {db.prefix}meta", {})
        return int(found[0][0]) if found else 0
    if tables:
        raise SchemaError(f"{db.url} is a database, but not a Covey queue; name another with --db")
    return 0


def check(found: int, wanted: int, url: str) -> None:
    """SchemaError unless this Covey can work with that schema."""
    if found > wanted:
        raise SchemaError(f"{url} has schema {found}, this Covey knows {wanted}; upgrade covey")
    if found < wanted:
        raise SchemaError(f"{url} has schema {found}, this Covey needs {wanted}; run `covey db migrate`")


def migrate(db: Dialect, *, database_id: str, now: int) -> list[int]:
    """The schema is the newest; the numbers that were applied. Of two processes one applies, one finds it done."""
    todo = steps(db.name)
    applied = []
    if (found := current(db)) > max(todo):
        check(found, max(todo), db.url)  # before anything is written
    for number, script in todo.items():
        with db.transaction(alone=True, marked=False):
            found = current(db)
            if found > max(todo):
                check(found, max(todo), db.url)
            if found >= number:
                continue
            failpoint("migrate.before_script")
            db.script(script)
            failpoint("migrate.after_script")
            if number == 1:
                made = f'insert into {db.prefix}meta ("only", database_id, schema, created_at) values (1, :id, 1, :now)'
                db.query(made, {"id": database_id, "now": now})
            else:
                db.query(f"update {db.prefix}meta set schema = :number", {"number": number})
            applied.append(number)
    return applied
