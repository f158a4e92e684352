"""What can be stored, to the last value that is allowed and the first that is not; and what is made of any report."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import UNSET

from covey.core import check
from covey.core.model import MAX_PAYLOAD, Report, Spec
from covey.core.view import rfc3339
from covey.errors import InvalidInput, TooLarge
from tests.kit.factories import python_task

YEAR_10000 = 253_402_300_800_000_000

# field → the values at the edge that are allowed, those that are not, and a word of the refusal
EDGES: dict[str, tuple[list[Any], list[Any], str]] = {
    "queue": (["q", "_", "a" * 200, "A9_.:@/+-"], ["", "a" * 201, "-a", "a b", "ä"], "queue"),
    "kind": (["command", "sync", "async"], ["thread"], "kind 'thread': one of command, sync, async"),
    "task": (["t", "t" * 300], ["", "t" * 301, "\x00", "a\nb", "\ud800"], "task"),
    "key": ([None, "k", "k" * 300, "7a", "ü"], ["", "k" * 301, "7", "\x7f"], "key"),
    "unique_key": ([None, "k", "k" * 300], ["", "k" * 301, "7"], "unique_key"),
    "batch": ([None, "b" * 200], ["", "b" * 201], "batch"),
    "cwd": ([None, "/" * 4096], ["", "/" * 4097], "cwd"),
    "created_by": ([None, "c" * 200], ["", "c" * 201], "created_by"),
    "labels": (
        [None, {}, {"l" * 100: "v" * 1000}],
        [{"": "v"}, {"l" * 101: "v"}, {"l": ""}, {"l": "v" * 1001}],
        "label",
    ),
    "priority": ([-(2**31), 0, 2**31 - 1], [-(2**31) - 1, 2**31, True, 1.0], "priority"),
    "max_attempts": ([1, 1_000_000], [0, 1_000_001, True, 1.0], "max_attempts"),
    "timeout_s": ([None, 1e-9, 1e9 - 1], [0, -1, 1e9, math.nan], "timeout"),
    "tree_timeout_s": ([None, 1e-9, 1e9 - 1], [0, -1, 1e9, math.nan], "tree_timeout"),
    "delay_s": ([None, 0, 1e10 - 1], [-1e-9, 1e10, math.nan], "delay"),
    "run_at": ([None, 1 - YEAR_10000, YEAR_10000 - 1], [-YEAR_10000, YEAR_10000], "run_at"),
    "backoff_cap_s": ([0, 1e9], [-1e-9, 1e9 + 1, math.nan], "back-off"),
    "backoff_base": ([1, 1e308], [1 - 1e-9, math.inf, math.nan, 10**400], "back-off"),
    "on_error": (["wait", "cancel", "collect"], ["stop"], "on_error 'stop': one of wait, cancel, collect"),
    "child_mode": ([None, "concurrent", "serial"], ["both"], "mode 'both': one of concurrent, serial"),
}


@pytest.mark.parametrize("field", EDGES)
def test_a_field_is_allowed_up_to_its_edge_and_refused_beyond(field: str) -> None:
    allowed, refused, word = EDGES[field]
    for value in allowed:
        spec = python_task(**{field: value})
        assert check.check_spec(spec) is spec
    for value in refused:
        with pytest.raises(InvalidInput, match=word):
            check.check_spec(python_task(**{field: value}))


def test_limits_of_queues() -> None:
    for concurrency in (None, UNSET, 1, 1_000_000):
        check.check_limits(concurrency, UNSET)
    for depth in (UNSET, 0, 1000):
        check.check_limits(UNSET, depth)
    for concurrency in (0, 1_000_001, True, 1.0):
        with pytest.raises(InvalidInput, match="concurrency"):
            check.check_limits(concurrency, UNSET)
    for depth in (None, -1, 1001, True, 1.0):
        with pytest.raises(InvalidInput, match="max_depth"):
            check.check_limits(UNSET, depth)


def test_arguments_are_json_of_a_mebibyte_at_most() -> None:
    spec = lambda text: Spec(task="t", args=text)  # noqa: E731
    check.check_spec(spec('"' + "a" * (MAX_PAYLOAD - 2) + '"'))
    check.check_spec(spec('"' + "ä" * (MAX_PAYLOAD // 2 - 1) + '"'))
    with pytest.raises(TooLarge, match="1,048,577 bytes of JSON, the limit is 1,048,576"):
        check.check_spec(spec('"' + "a" * (MAX_PAYLOAD - 1) + '"'))
    with pytest.raises(TooLarge):
        check.check_spec(spec('"' + "ä" * (MAX_PAYLOAD // 2) + '"'))
    for text in ("", "{", "NaN"):
        with pytest.raises(InvalidInput, match="arguments of t: this is not JSON"):
            check.check_spec(spec(text))


def test_a_report_that_can_be_stored_is_left_as_it_is() -> None:
    for fields in (
        {},
        {"worker": "command-1"},
        {"result": '"' + "a" * (MAX_PAYLOAD - 2) + '"', "info": '{"a": 1}', "error": "e", "detail": "d"},
    ):
        report = Report(1, 2, "success", **fields)  # type: ignore[arg-type]
        assert check.storable(report) is report


@pytest.mark.parametrize("name", ["error", "detail", "worker"])
def test_a_text_that_cannot_be_stored_is_replaced_and_nothing_else(name: str) -> None:
    for bad, good in (("a\x00b", "a\ufffdb"), ("a\ud800", "a?"), ("ä", "ä")):
        report = Report(1, 2, "failure", **{"error": "e", "detail": "d", "worker": "w", name: bad})  # type: ignore[arg-type]
        stored = check.storable(report)
        assert getattr(stored, name) == good
        others = {"error": "e", "detail": "d", "worker": "w"}
        assert {each: getattr(stored, each) for each in others if each != name} == {
            each: text for each, text in others.items() if each != name
        }
        assert stored.outcome == "failure"


def test_an_info_that_is_no_json_is_left_out_and_such_a_result_buries_the_job() -> None:
    told = check.storable(Report(1, 2, "success", info="{", result="1"))
    assert (told.info, told.result, told.outcome) == (None, "1", "success")
    told = check.storable(Report(1, 2, "success", info="{}", result="{", spawned=[]))
    assert (told.info, told.result, told.outcome, told.spawned) == ("{}", None, "abort", None)
    assert told.error == "its result cannot be stored: this is not JSON"
    told = check.storable(Report(1, 2, "success", result='"' + "a" * MAX_PAYLOAD + '"'))
    assert "the limit is 1,048,576" in (told.error or "")


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000Z"),
        (-62_135_596_800_000_001, "0001-01-01T00:00:00.000Z"),
        (-(2**63), "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000_000, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_every_instant_that_a_column_holds_can_be_shown(at: int | None, shown: str | None) -> None:
    assert rfc3339(at) == shown


def test_text_is_what_utf_8_can_write() -> None:
    assert check.is_unicode("")
    assert check.is_unicode("ä\x00𝄞")
    assert not check.is_unicode("a\udcff")
