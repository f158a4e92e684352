"""Forward migrations, numbered. One transaction each, so a crash in the middle leaves the step before.

Pools that run while their queue is migrated go on with the statements of the release before. So a step either keeps
those valid and their effect right, or it renames what it changes: then they fail, and such a pool stops.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from importlib.resources import files

from ..env import failpoint
from ..errors import Busy, SchemaError, Undone
from .dialect import Dialect

WAIT_S = 1.0  # for a lock; twice that, for the queue's and for a table's, is the longest that others are held up
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
LOCKED = "and nothing was changed; end long transactions (pg_stat_activity names them), then try again"


def steps(dialect: str) -> dict[int, str]:
    """Migration texts by number."""
    found: dict[int, str] = {}
    for entry in (files(__package__) / dialect / "schema").iterdir():
        if match := re.fullmatch(r"(\d{4})\.sql", entry.name):
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


def migrate(db: Dialect, *, database_id: str, now: int, say: Callable[[str], None] = lambda text: None) -> list[int]:
    """The schema is the newest; the numbers that were applied. Of two processes one applies, one finds it done.

    Whoever wants to write waits behind a step that waits for somebody's lock. So it waits briefly, and lets the others
    pass before it tries again.
    """
    todo = steps(db.name)
    if (found := current(db)) > max(todo):
        check(found, max(todo), db.url)  # before anything is written
    applied: list[int] = []
    for number in todo:
        for pause_s in (*PAUSES_S, None):
            try:
                if number > found and number not in applied:
                    applied += _apply(db, number, todo, made=(database_id, now))
                break
            except (Busy, Undone) as error:
                if pause_s is None:
                    raise Undone(f"{error}; step {number:04} was not begun, {LOCKED}") from None
                say(f"{error}; trying again in {pause_s:g} s")
                time.sleep(pause_s)
    return applied


def _apply(db: Dialect, number: int, todo: dict[int, str], *, made: tuple[str, int]) -> list[int]:
    """The step is in the database; what was done for that, which is nothing if somebody else has done it.

    A new queue gets all steps at once: nobody who opens it meanwhile may take it for an old one.
    """
    with db.transaction(alone=True, marked=False, wait_s=WAIT_S):
        if (found := current(db)) > max(todo):
            check(found, max(todo), db.url)
        if found >= number:
            return []
        numbers = list(todo) if found == 0 else [number]
        for each in numbers:
            failpoint("migrate.before_script")
            db.script(todo[each])
            failpoint("migrate.after_script")
            if each == 1:
                insert = (
                    f'insert into {db.prefix}meta ("only", database_id, schema, created_at) values (1, :id, 1, :now)'
                )
                db.query(insert, {"id": made[0], "now": made[1]})
            else:
                db.query(f"update {db.prefix}meta set schema = :number", {"number": each})
    return numbers
