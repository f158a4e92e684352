"""What the values of an option look like: in Python, in JSON, as words of the command line, in a column."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import InvalidInput
from . import check
from .model import NEVER

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
Check = Callable[[Any, str], Any]
Read = Callable[[Any, str], Any]


def _as_it_is(value: Any, name: str) -> Any:
    return value


class Form(Struct, frozen=True):
    """Each function takes a value and the name under which it was said, and answers the value as a Spec has it."""

    check: Check  # InvalidInput for what cannot be
    python: Read = _as_it_is
    json: Read = _as_it_is
    word: Any = str  # of the command line: str, int, bool, list[str]
    words: Read | None = None  # None: as in JSON
    types: tuple[str, ...] = ("string",)  # in JSON, in the words of JSON schema
    bounds: Mapping[str, Any] = {}  # likewise
    column: str = "text"
    stored: Callable[[Any], Any] | None = None  # None: as it is
    shown: Callable[[Any], Any] | None = None  # from what is stored to what a view shows; None: as it is
    null: Any = None  # what a JSON null says; None: nothing

    def show(self, value: Any) -> Any:
        return value if value is None or self.shown is None else self.shown(value)


def seconds(value: float | timedelta, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name} {value!r}: pass a number of seconds or a timedelta")
    return value


def _path(value: Any, name: str) -> str:
    return value if isinstance(value, str) else os.fspath(value)


def instant(value: datetime, name: str) -> int:
    """Microseconds since the epoch. A time without a zone is refused: it would mean something else on another host."""
    if not isinstance(value, datetime):
        raise InvalidInput(f"{name} {value!r}: pass a datetime with a time zone, or use delay=")
    if value.utcoffset() is None:
        raise InvalidInput(
            f"{name} {value.isoformat()} has no time zone; add one, for example tzinfo=UTC, or use delay="
        )
    if value > LAST:
        raise InvalidInput(f"{name} {value.isoformat()} is after the year 9999 in UTC; choose an earlier time")
    return (value - EPOCH) // timedelta(microseconds=1)


def _duration(value: Any, name: str) -> Any:
    from .times import seconds

    return seconds(value, name) if isinstance(value, str) else value


def _moment(value: Any, name: str) -> int:
    from .times import moment

    return moment(check.is_text(value, name), name)


def timeout(value: Any, name: str = "timeout") -> Any:
    """A number of seconds or a duration; null and `never` are no limit."""
    if value is None or (isinstance(value, str) and value.strip().lower() in (NEVER, "none", "off")):
        return NEVER
    return _duration(value, name)


def attempts(value: Any, name: str) -> int:
    """How often a job may run in all."""
    if type(value) is not int:
        raise InvalidInput(f"{name} {value!r}: a whole number, 1 or more")
    if value == 0:
        raise InvalidInput(f"{name} 0: it counts all runs, so 0 would never run the job; 1 is one run and no retry")
    return value


def _key(value: Any, name: str) -> str:
    return str(value) if type(value) is int else check.is_text(value, name)


def _object(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidInput(f'{name}: an object with strings is needed, as in {{"name": "value"}}')
    return value


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _limit(value: Any) -> Any:
    return None if value == NEVER else value


def _pairs(texts: Any, flag: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if bad := [text for text, (_, given, _) in zip(texts, pairs, strict=True) if not given]:
        raise InvalidInput(f"{flag} {bad[0]!r}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def one_of(words: tuple[str, ...]) -> Form:
    return Form(lambda value, name: check.check_choice(value, name, words), bounds={"enum": list(words)})


def short_text(most: int) -> Mapping[str, Any]:
    return {"minLength": 1, "maxLength": most, "pattern": check.PLAIN}


def text(most: int) -> Form:
    return Form(
        lambda value, name: check.check_text(check.is_text(value, name), name, most=most), bounds=short_text(most)
    )


def whole(least: int, most: int, checked: Check | None = None, read: Read = _as_it_is) -> Form:
    """A whole number; ``checked`` says in words of its own what is wrong with one."""

    def check_bounds(value: Any, name: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise InvalidInput(f"{name} {value!r}: a whole number from {least:,} to {most:,}")
        return value

    bounds = {"minimum": least, "maximum": most}
    return Form(checked or check_bounds, json=read, word=int, types=("integer",), bounds=bounds, column="bigint")


def time(checked: Check, **more: Any) -> Form:
    told: dict[str, Any] = {
        "python": seconds,
        "json": _duration,
        "types": ("number", "string"),
        "bounds": SECONDS,
        **more,
    }
    return Form(checked, column="double precision", **told)


SECONDS: Mapping[str, Any] = {"exclusiveMinimum": 0, "exclusiveMaximum": 10**9}
TEXTS: Mapping[str, Any] = {"additionalProperties": {"type": "string"}}
QUEUE = Form(check.check_queue, bounds={"pattern": f"^{check.NAME.pattern}$"})
KEY = Form(check.check_key, json=_key, bounds={**short_text(300), "not": {"pattern": "^[0-9]+$"}})
PRIORITY = whole(-(2**31), 2**31 - 1, check.check_priority)
ATTEMPTS = whole(1, 1_000_000, check.check_attempts, attempts)
FLAG = Form(check.check_flag, word=bool, types=("boolean",), column="integer", stored=int, shown=bool)
INSTANT = Form(check.check_run_at, instant, _moment, bounds={"format": "date-time"}, column="bigint")
PATH = Form(
    lambda value, name: check.check_text(check.refuse_nul(value, name), name, most=4096), _path, bounds=short_text(4096)
)
DELAY = time(check.check_delay, bounds={"minimum": 0, "exclusiveMaximum": 10**10})
TIMEOUT = time(check.check_timeout, json=timeout, stored=_limit, null=NEVER)
BASE = Form(check.check_backoff_base, types=("number",), bounds={"minimum": 1}, column="double precision")
CAP = time(check.check_backoff_cap, bounds={"minimum": 0, "maximum": int(check.LONGEST_BACKOFF_S)})
ENV = Form(check.check_env, json=_object, word=list[str], types=("object",), bounds=TEXTS)
LABELS = Form(
    check.check_labels,
    json=_object,
    word=list[str],
    words=_pairs,
    types=("object",),
    bounds=TEXTS,
    stored=_json_text,
    shown=msgspec.json.decode,
)
