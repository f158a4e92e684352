"""covey db: look after the database."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InvalidInput, Refused
from ..open_queue import database, open_database
from ..options import Db, Json
from ..printing import answer, as_json, decide, note

if TYPE_CHECKING:
    from ...engine.engine import Engine

LONGEST_S = 300 * 366 * 86_400  # the instant before which a job must have ended has to fit into a column
PRUNABLE = ("completed", "cancelled", "dead")

Target = Annotated[str, typer.Argument(metavar="FILE", help="Where the copy goes.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="TIME", help="Ended before 7d, 12h … ago; else the retention settings."),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", "-s", metavar="STATE", help="completed, cancelled or dead; repeatable. Else the first two."
    ),
]


def migrate(json: Json = False, db: Db = None) -> None:
    """Bring the tables up to date. Safe to run twice, and by two at once."""
    from ... import env
    from ...open import open_dialect
    from ...store import migrate as migrations

    dialect = open_dialect(database(db))
    try:
        applied = migrations.migrate(dialect, database_id=env.new_database_id(), now=env.now(), say=note)
        schema = migrations.current(dialect)
    finally:
        dialect.close()
    if json:
        as_json({"applied": applied, "schema": schema})
        return
    for number in applied:
        answer(f"applied {number:04}")
    answer(f"schema {schema}" + ("" if applied else ", nothing to do"))


def check(json: Json = False, db: Db = None) -> int:
    """Check the database for damage: SQLite's own check and all references; PostgreSQL's indexes.

    Exits 1 if something is wrong.
    """
    import apsw

    engine = open_database(db)
    try:
        problems = _kept(engine).problems()
    except apsw.Error as error:  # damage so bad that the check itself stumbles over it
        problems = [str(error)]
    code = decide(1 if problems else 0)
    if json:
        as_json({"database": database(db), "problems": problems})
    else:
        for problem in problems:
            answer(problem)
        repair = "restore a backup, or copy what is left with .recover"
        if engine.store.dialect.row_locks:
            repair = "mend them, or restore a backup"
        answer("ok" if not problems else f"{len(problems)} problems; {repair}")
    return code


def backup(file: Target, overwrite: Overwrite = False, db: Db = None) -> None:
    """Copy the live database, consistently, while it is in use."""
    target = os.path.abspath(file)
    if os.path.isdir(target):
        raise InvalidInput(f"{file!r} is a directory; name a file")
    if not os.path.isdir(os.path.dirname(target)):
        raise InvalidInput(f"{file!r}: there is no such directory")
    if os.path.exists(target) and not overwrite:
        raise Refused(f"{file!r} is there already; say --overwrite to replace it")
    dialect = _kept(open_database(db))
    if dialect.row_locks:
        raise Refused(f"{dialect.url} is a server's to back up; use pg_dump --schema={dialect.schema}")
    if os.path.exists(target) and os.path.samefile(target, dialect.path):
        raise Refused("that is the queue itself; name another file")
    from ..render import bar

    with bar() as shown:
        task = shown.add_task("copying pages", total=None)
        for left, total in dialect.backup(target):
            shown.update(task, total=total, completed=total - left)
    answer(target)


def prune(older_than: OlderThan = None, state: States = None, json: Json = False, db: Db = None) -> None:
    """Delete jobs that ended long ago, by the retention settings or by --older-than."""
    from ...core.times import seconds

    states = tuple(word for text in state or () for word in text.split(",")) or ("completed", "cancelled")
    for word in states:
        if word not in PRUNABLE:
            raise InvalidInput(f"--state {word!r}: only completed, cancelled and dead jobs can be pruned")
    age_s = None if older_than is None else seconds(older_than, "--older-than")
    if age_s is not None and age_s >= LONGEST_S:
        raise InvalidInput(f"--older-than {older_than!r}: longer ago than anything; at most 300 years")
    engine = open_database(db)
    limits = _limits(engine, states, age_s)
    from ..render import bar

    pruned, cursor = 0, 0
    with bar() as shown:
        task = shown.add_task("looking at jobs", total=engine.newest_id())
        while True:
            upto, removed = engine.prune_window(cursor, limits)
            pruned += removed
            if upto is None:
                break
            cursor = upto
            shown.update(task, completed=cursor)
    if json:
        as_json({"pruned": pruned})
    else:
        answer(f"{pruned} jobs pruned")


def vacuum(json: Json = False, db: Db = None) -> None:
    """Rewrite the file without its unused space; writers wait meanwhile. PostgreSQL makes it free for new rows."""
    engine = open_database(db)
    dialect = _kept(engine)
    before = dialect.size()
    if not dialect.row_locks:
        note("writers wait until this is done")
    dialect.vacuum()
    after = dialect.size()
    if json:
        as_json({"bytes_before": before, "bytes_after": after})
    else:
        answer(f"{before:,} bytes before, {after:,} now")


def _limits(engine: Engine, states: tuple[str, ...], age_s: float | None) -> dict[str, int]:
    """For each state the instant before which it must have ended; states that are kept are left out."""
    now = engine.clock()
    if age_s is not None:
        return dict.fromkeys(states, now - int(age_s * 1_000_000))
    settings = engine.settings()
    keep = {word: settings[f"keep_{word}_seconds"] for word in states}
    return {word: now - int(kept_s * 1_000_000) for word, kept_s in keep.items() if kept_s is not None}


def _kept(engine: Engine) -> Any:
    """The database, which can be looked after beyond what the seam knows."""
    dialect = engine.store.dialect
    if dialect.url.startswith("memory:"):
        raise Refused("a queue in memory needs no care")
    return dialect
