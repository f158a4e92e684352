"""Values as they are written into statements: what arrives is what was given, whatever it looks like."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.engine.engine import Engine
from covey.store.postgres.binding import placeholders, written

AWKWARD = (
    *("", "plain", "it's", "'", "''", "\\", "\\'", "'; drop table x; --", "%", "%s", "%%", "%(text)s", ":text", "::"),
    *("--", "/*", "$1", "$$", "$covey$", "{jobs}", "a\nb", "\t", "\x7f", "ünïcödé", "🦆", "\u2028", "NULL", "true"),
)
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.sampled_from(AWKWARD)
BIGINT = st.integers(-(2**63) + 1, 2**63 - 1)
VALUES = st.none() | st.booleans() | BIGINT | st.floats(allow_nan=False) | ANY
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TYPES: dict[type, str] = {str: "text", int: "bigint", float: "double precision", bool: "boolean", type(None): "text"}


def arrived(engine: Engine, **values: Any) -> tuple[Any, ...]:
    """What the server makes of them."""
    asked = ", ".join(f":{name}::{TYPES[type(value)]}" for name, value in values.items())
    (row,) = engine.store.dialect.query(f"select {asked}, '100%'", values)
    assert row[-1] == "100%"
    return row[:-1]


@pytest.mark.parametrize("text", AWKWARD)
def test_an_awkward_text_arrives_as_it_was_given(engine: Engine, text: str) -> None:
    assert arrived(engine, text=text, after=1) == (text, 1)


@QUICK
@given(st.lists(VALUES, min_size=1, max_size=6))
def test_all_values_arrive_as_they_were_given(engine: Engine, values: list[Any]) -> None:
    found = arrived(engine, **{f"v{n}": value for n, value in enumerate(values)})
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]


def test_a_number_that_is_none_and_those_without_end_arrive_too(engine: Engine) -> None:
    found = arrived(engine, a=math.inf, b=-math.inf, c=math.nan)
    assert found[:2] == (math.inf, -math.inf)
    assert math.isnan(found[2])


def test_a_negative_number_behind_a_minus_begins_no_comment(engine: Engine) -> None:
    assert engine.store.dialect.query("select 1 -:n, 5", {"n": -1}) == [(2, 5)]


def test_plain_values_are_written_here_and_all_others_by_psycopg() -> None:
    """Otherwise the tests above would show nothing of one of the two ways."""
    text = placeholders("f(:a, :b)")
    assert written(text, {"a": "x", "b": None}) == "f('x', NULL)"
    assert written(text, {"a": -1, "b": True}) == "f( -1, true)"
    assert written(text, {"a": 2.5, "b": '{"k": "%"}'}) == """f( 2.5, '{"k": "%"}')"""
    for value in ("it's", "\\", "\0", math.nan, math.inf, b"bytes", ["list"]):
        assert written(text, {"a": "x", "b": value}) is None
