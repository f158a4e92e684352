"""covey db on PostgreSQL."""

from __future__ import annotations

import os

from tests.kit.postgres import Given, Server

from .conftest import CommandLine
from .copies import Places


def test_a_database_in_postgresql_is_looked_after(covey: CommandLine, place: Places) -> None:
    db = ["--db", place("postgres")]
    assert covey(*db, "db", "migrate").out == "schema 3, nothing to do\n"
    covey(*db, "enqueue", "-", stdin=b"a\nb\nc\n")
    covey(*db, "cancel", "1", "2")
    assert covey(*db, "db", "check").out == "ok\n"
    assert covey(*db, "db", "prune", "--older-than", "0s", "--json").json == {"pruned": 2}
    sizes = covey(*db, "db", "vacuum", "--json")
    assert (sizes.code, sizes.err) == (0, "")
    assert sizes.json["bytes_after"] > 0
    backup = covey(*db, "db", "backup", "copy.sql")
    assert (backup.code, backup.out) == (1, "")
    assert "use pg_dump --schema=copy_from_" in backup.err
    assert backup.err.count("\n") == 1
    assert not (covey.directory / "copy.sql").exists()


def test_a_schema_is_made_where_there_is_none(covey: CommandLine, server: Server | Given) -> None:
    schema = f"fresh_{os.getpid()}"
    try:
        assert (
            covey("--db", server.url(schema), "db", "migrate").out
            == "applied 0001\napplied 0002\napplied 0003\nschema 3\n"
        )
    finally:
        with server.admin() as admin:
            admin.execute(f"drop schema if exists {schema} cascade".encode())
