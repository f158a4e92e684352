"""Which SQLite is safe in WAL mode."""

from __future__ import annotations

import apsw
import pytest

from covey.store.sqlite.database import version_problem


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("3.40.1", "bad"),
        ("3.44.5", "bad"),
        ("3.44.6", "ok"),
        ("3.50.6", "bad"),
        ("3.50.7", "ok"),
        ("3.51.2", "bad"),
        ("3.51.3", "ok"),
        ("3.52.0", "warn"),
        ("3.53.0", "ok"),
        ("3.54.1", "ok"),
        ("4.0.0", "ok"),
        ("3.45.0", "bad"),
    ],
)
def test_the_version_gate_knows_the_wal_reset_bug(version: str, verdict: str) -> None:
    problem = version_problem(version)
    assert (problem[0] if problem else "ok") == verdict
    assert problem is None or version in problem[1]


def test_the_library_in_use_is_a_good_one() -> None:
    assert version_problem(apsw.sqlite_lib_version()) is None
