"""JSON in and out: what is accepted comes back equal."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as some

from covey.core import codec
from covey.errors import InvalidInput

texts = some.text(some.characters(), max_size=20)
values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | texts,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_an_accepted_value_comes_back_equal_and_is_json_for_everybody(value: object) -> None:
    try:
        text = codec.encode(value, what="value")
    except InvalidInput:
        return
    assert codec.decode(text) == value
    assert codec.is_json(text)
    text.encode()


@given(some.text(some.characters(codec=None), max_size=50))
def test_cleaned_text_can_always_be_stored(text: str) -> None:
    cleaned = codec.clean(text)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert codec.clean(cleaned) == cleaned


@given(some.binary(max_size=50))
def test_printable_output_is_always_valid_text(data: bytes) -> None:
    json.dumps(codec.printable(data), ensure_ascii=False).encode()
    assert "\x00" not in codec.printable(data)


@given(values)
def test_what_json_dumps_writes_is_json_unless_a_reader_would_choke(value: object) -> None:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return
    if "\\ud" not in text:
        assert codec.is_json(text)
