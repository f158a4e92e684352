"""Named SQL: every statement compiles, every statement is used, every override says why."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

import covey
from covey.engine.engine import Engine
from covey.store import statements

SQL = statements.load("sqlite")
FRAGMENTS = {name for name in SQL if name.startswith("where_")}


@pytest.mark.parametrize("name", sorted(SQL.keys() - FRAGMENTS))
def test_every_statement_compiles_on_the_schema(engine: Engine, name: str) -> None:
    sql = SQL[name].replace("_N", "_0")
    params = dict.fromkeys(re.findall(r":(\w+)", sql), None)
    engine.store.dialect.query(f"explain {sql}", params)


@pytest.mark.parametrize("name", sorted(FRAGMENTS))
def test_every_condition_compiles_in_the_view(engine: Engine, name: str) -> None:
    sql = f"explain {SQL['view']} where {SQL[name]}"
    engine.store.dialect.query(sql, dict.fromkeys(re.findall(r":(\w+)", sql), None))


def test_every_statement_is_used() -> None:
    code = "".join(
        file.read_text() for file in Path(covey.__file__).parent.rglob("*.py") if "testing" not in file.parts
    )
    unused = [name for name in SQL.keys() - FRAGMENTS if f'"{name}"' not in code]
    assert unused == []


def test_names_are_not_given_twice_and_every_override_says_why() -> None:
    room = files("covey.store")
    for file in ("queries.sql", "sqlite.sql"):
        names = re.findall(r"^-- name: (\w+)$", (room / file).read_text(), re.MULTILINE)
        assert len(names) == len(set(names))
    parts = re.split(r"^-- name: \w+\n", (room / "sqlite.sql").read_text(), flags=re.MULTILINE)[1:]
    assert all(part.startswith("-- differs because ") for part in parts)


def test_tables_can_have_a_prefix_and_comments_are_gone() -> None:
    loaded = statements.load("sqlite", "covey.")
    assert loaded["meta"] == "select database_id, schema, sealed from covey.meta"
    assert not any("{" in sql or "--" in sql for sql in loaded.values())
    assert loaded.keys() == SQL.keys()
