"""Named SQL: every statement compiles, every statement is used, every override says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import covey
from covey.engine.engine import Engine
from covey.open import open_engine
from covey.store import statements
from covey.store.postgres.functions import PLANNED
from tests.kit import HandPool, command

DIALECTS = ("sqlite", "postgres")
SQL = {dialect: statements.load(dialect) for dialect in DIALECTS}
NAMES = sorted(SQL["sqlite"].keys() | SQL["postgres"].keys())
FRAGMENTS = [name for name in NAMES if name.startswith("where_")]


def test_every_statement_compiles_on_the_schema(engine: Engine) -> None:
    store = engine.store
    for name, sql in statements.load(store.dialect.name, store.dialect.prefix).items():
        if name not in FRAGMENTS:
            store.dialect.query(f"explain {sql}", nothing(sql))


def test_every_condition_compiles_in_the_view(engine: Engine) -> None:
    loaded = statements.load(engine.store.dialect.name, engine.store.dialect.prefix)
    for name in FRAGMENTS:
        sql = f"explain {loaded['view']} where {loaded[name]}"
        engine.store.dialect.query(sql, nothing(sql))


def nothing(sql: str) -> dict[str, None]:
    """A null for every parameter."""
    return dict.fromkeys(re.findall(r"(?<!:):([a-z]\w*)", sql))


def test_postgres_is_asked_everything_that_sqlite_is() -> None:
    assert SQL["sqlite"].keys() <= SQL["postgres"].keys()


def test_every_statement_is_used() -> None:
    code = "".join(
        file.read_text() for file in Path(covey.__file__).parent.rglob("*.py") if "testing" not in file.parts
    )
    unused = [name for name in NAMES if name not in FRAGMENTS and f'"{name.removesuffix("_locked")}"' not in code]
    assert unused == []


def test_names_are_not_given_twice_and_every_override_says_why() -> None:
    """An override is what another file says too; what only one database is asked differs from nothing."""
    texts = {
        file: (files("covey.store") / file).read_text()
        for file in ("queries.sql", "sqlite/statements.sql", "postgres/statements.sql")
    }
    said = {file: re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:] for file, text in texts.items()}
    names = {file: parts[::2] for file, parts in said.items()}
    for given in names.values():
        assert len(given) == len(set(given))
    for file in ("sqlite/statements.sql", "postgres/statements.sql"):
        elsewhere = {name for other, given in names.items() if other != file for name in given}
        bodies = dict(zip(names[file], said[file][1::2], strict=True))
        silent = [n for n, body in bodies.items() if n in elsewhere and not body.startswith("-- differs because ")]
        assert silent == [], file


def test_tables_can_have_a_prefix_and_comments_are_gone() -> None:
    loaded = statements.load("sqlite", "covey.")
    assert loaded["meta"] == "select database_id, schema, sealed from covey.meta"
    assert not any("{" in sql or "--" in sql for sql in loaded.values())
    assert loaded.keys() == SQL["sqlite"].keys()


def test_postgresql_plans_the_short_statements_once(postgres_queue: Callable[[], str]) -> None:
    engine = open_engine(postgres_queue())
    try:
        assert engine.store._calls.keys() == PLANNED.keys()
        (made,) = engine.enqueue([command()])
        (again,) = engine.enqueue([command()])  # in one message, now that the queue is known
        assert [claim.id for claim in HandPool(engine).claim(5)] == [made.id, again.id]
    finally:
        engine.close()
