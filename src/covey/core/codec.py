"""JSON in and out, strict where a lenient codec would change a value on the way."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import msgspec

from ..errors import InvalidInput, TooLarge
from .model import MAX_PAYLOAD

_raw = msgspec.json.Decoder(msgspec.Raw)


def encode(value: Any, *, what: str, limit: int = MAX_PAYLOAD) -> str:
    """JSON text that decodes to an equal value, or InvalidInput that says where it would not."""
    if not _is_plain(value) and (problem := find_problem(value, what)):
        raise InvalidInput(problem)
    try:
        text = _encode(value)
    except RecursionError:
        raise InvalidInput(f"{what}: nested too deeply for JSON") from None
    except ValueError:  # the only one left: Python writes no longer numbers, and reads none
        most = sys.get_int_max_str_digits()
        raise InvalidInput(f"{what}: a number of more than {most:,} digits; pass it as a string") from None
    # A character takes at most four bytes, so most texts need no counting.
    if len(text) * 4 > limit and (size := len(text.encode())) > limit:
        raise TooLarge(f"{what}: {size:,} bytes of JSON, the limit is {limit:,}; pass a path or an id instead")
    return text


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _is_plain(value: Any, depth: int = 4) -> bool:
    """Whether nothing needs a closer look: the usual arguments, without the cost of naming every place in them."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    if kind is int or value is None or kind is bool:
        return True
    if depth and (kind is list or kind is tuple):
        return all(_is_plain(item, depth - 1) for item in value)
    if depth and kind is dict:
        return all(type(key) is str and key.isascii() and _is_plain(item, depth - 1) for key, item in value.items())
    return False


def decode(text: str | bytes) -> Any:
    return msgspec.json.decode(text)


def is_json(text: str) -> bool:
    """Whether ``text`` is one JSON value that every reader will accept."""
    try:
        _raw.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def find_problem(value: Any, where: str) -> str | None:
    """Why JSON cannot carry ``value`` unchanged, or None."""
    try:
        return _problem(value, where)
    except RecursionError:
        return f"{where}: nested too deeply for JSON"


def _problem(value: Any, where: str) -> str | None:
    kind = type(value)
    if kind is str:
        return _text_problem(value, where)
    if kind is int or kind is bool or value is None:
        return None
    if kind is float:
        return None if math.isfinite(value) else f"{where}: {value} is not JSON; pass None or a string"
    if kind is list or kind is tuple:
        for index, item in enumerate(value):
            if found := _problem(item, f"{where}[{index}]"):
                return found
        return None
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                return f"{where}: the key {key!r} is not a string, and JSON has no other keys"
            if found := _text_problem(key, where) or _problem(item, f"{where}[{key!r}]"):
                return found
        return None
    return f"{where}: a {kind.__qualname__} is not JSON; pass plain numbers, strings, lists and dicts"


def _text_problem(text: str, where: str) -> str | None:
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"{where}: a lone surrogate at position {error.start} is not text; decode the bytes with errors='replace'"
        )
    return None


def printable(data: bytes) -> str:
    """Bytes of unknown origin as text that is valid everywhere: bad UTF-8 and NUL are replaced."""
    return data.decode("utf-8", "replace").replace("\x00", "\ufffd")


def clean(text: str) -> str:
    """Any Python string as storable text: lone surrogates and NUL are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8", "replace").replace("\x00", "\ufffd")
