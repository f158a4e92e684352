"""Values on their way in and out: what JSON can carry, instants as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from covey.core import codec
from covey.core.retry import backoff_s
from covey.core.view import rfc3339
from covey.errors import InvalidInput, TooLarge


class Text(str):
    pass


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, True, None, "x"]}, '{"a":[1,true,null,"x"]}'),
        ((1, 2), "[1,2]"),
        ("ä", '"ä"'),
        ({"ä": "ö"}, '{"ä":"ö"}'),
        (0.5, "0.5"),
        ({"a": {"b": {"c": {"d": {"e": 0.5}}}}}, '{"a":{"b":{"c":{"d":{"e":0.5}}}}}'),
        ([[[[[["ä"]]]]]], '[[[[[["ä"]]]]]]'),
    ],
)
def test_json_text_is_short_and_equal(value: Any, text: str) -> None:
    assert codec.encode(value, what="v") == text
    assert codec.is_json(text)
    assert codec.find_problem(value, "v") is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (float("nan"), "v: nan is not JSON"),
        ([1, [float("inf")]], "v[1][0]: inf is not JSON"),
        ({"a": {"b": float("nan")}}, "v['a']['b']: nan"),
        ({1: 2}, "v: the key 1 is not a string"),
        ({"a": {1: 2}}, "v['a']: the key 1"),
        ({Text("a"): 1}, "is not a string"),
        ("a\ud800", "v: a lone surrogate at position 1"),
        ({"\ud800": 1}, "v: a lone surrogate at position 0"),
        ([[[[[["\ud800"]]]]]], "v[0][0][0][0][0][0]: a lone surrogate"),
        (b"x", "v: a bytes is not JSON"),
        ([{1}], "v[0]: a set is not JSON"),
        (Text("a"), "v: a Text is not JSON"),
        (nested(100_000), "v: nested too deeply for JSON"),
    ],
)
def test_what_json_cannot_carry_is_said_with_its_place(value: Any, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        codec.encode(value, what="v")
    assert says in str(refused.value)
    assert says in (codec.find_problem(value, "v") or "")


def test_the_limit_is_in_bytes() -> None:
    assert codec.encode("a" * 8, what="v", limit=10)
    assert codec.encode("ä" * 4, what="v", limit=10)
    for text in ("a" * 9, "ä" * 5):
        with pytest.raises(TooLarge, match="bytes of JSON, the limit is 10"):
            codec.encode(text, what="v", limit=10)


@pytest.mark.parametrize("text", ["", "{", "NaN", "1 2", "[" * 100_000, '"\ud800"'])
def test_what_is_no_json(text: str) -> None:
    assert not codec.is_json(text)


def test_text_is_made_storable() -> None:
    assert codec.printable(b"a\x00\xff\xc3\xa4") == "a\ufffd\ufffdä"
    assert codec.clean("a\x00\ud800ä") == "a\ufffd?ä"


def test_instants_have_milliseconds_and_are_utc() -> None:
    assert rfc3339(None) is None
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_234_567) == "1970-01-01T00:00:01.234Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59.999Z"


class Half:
    def random(self) -> float:
        return 0.75


@pytest.mark.parametrize(
    ("attempt", "base", "cap_s", "wanted"),
    [(1, 2.0, 300.0, 2.0), (3, 2.0, 300.0, 8.0), (9, 2.0, 300.0, 300.0), (5, 1.0, 300.0, 1.0), (5, 1.0, 0.5, 0.5)]
    + [(1, 2.0, 0.0, 0.0), (2, 3.0, 9.0, 9.0), (1, 1.1, 1e-6, 1e-6), (1, 1.01, 1.005, 1.005), (1, 1.5, 1.9, 1.5)],
)
def test_a_delay_is_the_power_up_to_the_cap(attempt: int, base: float, cap_s: float, wanted: float) -> None:
    assert backoff_s(attempt, base=base, cap_s=cap_s, jitter=False, rng=Half()) == pytest.approx(wanted)  # type: ignore[arg-type]
    assert backoff_s(attempt, base=base, cap_s=cap_s, jitter=True, rng=Half()) == pytest.approx(wanted / 4)  # type: ignore[arg-type]
