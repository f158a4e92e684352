"""How a task or one of its jobs is to be run, as a caller says it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

from .errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class TaskOptions(TypedDict, total=False):
    """What can be said of a task. Absent (or None) means: as configured."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    max_retries: int | None  # the same, under its other name
    timeout: float | timedelta | None
    backoff_base: float | None
    max_backoff: float | timedelta | None
    jitter: bool | None
    batch: str | None
    labels: Mapping[str, str] | None
    on_error: Literal["wait", "cancel", "collect"] | None  # what a child that did not complete means for the others
    mode: Literal["concurrent", "serial"] | None  # how its children run
    tree_timeout: float | timedelta | None  # how long it and all its descendants may take together


class JobOptions(TaskOptions, total=False):
    """What can be said of one job besides."""

    run_at: datetime | None
    delay: float | timedelta | None
    key: str | None
    unique_key: str | None
    if_exists: Literal["error", "return"] | None


def task_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a task, in the words of a Spec; InvalidInput for an option that a task does not have."""
    return _translate(given, TaskOptions.__annotations__)


def job_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for a job, in the words of a Spec; InvalidInput for an option that a job does not have."""
    return _translate(given, JobOptions.__annotations__)


def _translate(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidInput(f"no option {name!r}; known: {', '.join(known)}")
        if value is None:
            continue
        word, parse = _WORDS.get(name, (name, None))
        if word in words and words[word] != value:  # only max_attempts has two names
            raise InvalidInput("max_attempts and max_retries are the same thing; give one of them")
        words[word] = value if parse is None else parse(value, name)
    return words


def seconds(value: float | timedelta, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name} {value!r}: pass a number of seconds or a timedelta")
    return value


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
    return (value - EPOCH) // MICROSECOND


_WORDS: dict[str, tuple[str, Any]] = {
    "max_retries": ("max_attempts", None),
    "timeout": ("timeout_s", seconds),
    "max_backoff": ("backoff_cap_s", seconds),
    "mode": ("child_mode", None),
    "tree_timeout": ("tree_timeout_s", seconds),
    "run_at": ("run_at", instant),
    "delay": ("delay_s", seconds),
}
