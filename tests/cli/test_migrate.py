"""covey db migrate: a queue of an earlier schema, with some of everything in it, comes along as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey import env
from covey.open import open_dialect
from covey.store import migrate
from covey.store.store import Store
from covey.store.tables import TABLES, Rows
from covey.testing import FakeClock
from tests.kit import check_queue, command
from tests.kit.postgres import Given, Server

from .conftest import CommandLine
from .copies import fill, opened, work_off

FIRST = [table for table in TABLES if table.name not in ("tokens", "callers")]  # what schema 1 had


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "old.db")
        return
    server: Server | Given = request.getfixturevalue("server")
    schema = f"old_{os.getpid()}_{os.urandom(4).hex()}"
    yield server.url(schema)
    with server.admin() as admin:
        admin.execute(f"drop schema if exists {schema} cascade".encode())


@pytest.fixture
def old(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tables of schema 1, as its own script made them; its rows."""
    with monkeypatch.context() as patch:
        first = {name: {1: migrate.steps(name)[1]} for name in ("sqlite", "postgres")}
        patch.setattr(migrate, "steps", lambda dialect: first[dialect])
        dialect = open_dialect(url)
        assert migrate.migrate(dialect, database_id=env.new_database_id(), now=1) == [1]
    try:
        store = Store(dialect)
        there = Rows(store)
        with opened(str(tmp_path / "filled.db")) as filled:
            fill(filled)
            here = Rows(filled.store)
            for table in FIRST:
                columns = there.columns(table)
                for rows in here.pages(table, columns, None):
                    with store.transaction(marked=False):
                        there.add(table, columns, rows)
            with store.transaction(marked=False):
                there.set_last_ids({name: id for name, id in here.last_ids().items() if name != "tokens"})
        return rows_of(store)
    finally:
        dialect.close()


def rows_of(store: Store) -> dict[str, Any]:
    rows = Rows(store)
    pages = {table.name: rows.pages(table, rows.columns(table), None) for table in FIRST}
    kept = {name: [row for page in found for row in page] for name, found in pages.items()}
    return kept | {"database": store.ask("meta")[0][0]}


def test_a_queue_of_schema_1_is_refused_until_it_is_migrated_and_keeps_every_row(
    covey: CommandLine, url: str, old: dict[str, Any]
) -> None:
    assert all(old.values()), "an empty table proves nothing"
    refused = covey("--db", url, "list")
    assert (refused.code, refused.out) == (1, "")
    assert "has schema 1, this Covey needs 3; run `covey db migrate`" in refused.err
    assert covey("--db", url, "db", "migrate").out == "applied 0002\napplied 0003\nschema 3\n"
    assert covey("--db", url, "db", "migrate").out == "schema 3, nothing to do\n"
    clock = FakeClock()
    with opened(url, clock) as engine:
        assert rows_of(engine.store) == old
        assert engine.tokens() == []
        made = engine.enqueue([command()], request="r")
        assert engine.enqueue([command()], request="r") == made
        engine.create_token("ci", "client")
        assert len(work_off(engine, clock)) > 15
        assert check_queue(engine) == []


def test_numbers_go_on_after_a_migration(covey: CommandLine, url: str, old: dict[str, Any]) -> None:
    assert covey("--db", url, "db", "migrate", "--json").json == {"applied": [2, 3], "schema": 3}
    (id,) = covey("--db", url, "enqueue", "true").ids
    assert id == max(row[0] for row in old["jobs"]) + 2  # the last one was removed
