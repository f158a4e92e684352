"""Settings: what can be set, what it must look like, what holds when nobody sets it.

Settings live in the database, so every pool and client of a queue agrees on them. A few that belong to one
process may also come from its environment, which then wins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from .errors import InvalidInput


class Setting(Struct, frozen=True):
    name: str
    default: Any
    parse: Callable[[str], Any]
    about: str
    env: str | None = None


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    parse.__doc__ = f"a whole number from {least} to {most}"
    return parse


def number(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not least <= value <= most:  # NaN is not between anything
            raise ValueError
        return value

    parse.__doc__ = f"a number from {least:g} to {most:g}"
    return parse


def number_or_never(least: float, most: float) -> Callable[[str], float | None]:
    between = number(least, most)

    def parse(text: str) -> float | None:
        return None if text.lower() in ("never", "none", "off") else between(text)

    parse.__doc__ = f"a number from {least:g} to {most:g}, or 'never'"
    return parse


def choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    parse.__doc__ = "one of " + ", ".join(words)
    return parse


def yes_or_no(text: str) -> bool:
    """true or false"""
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if text.lower() not in words:
        raise ValueError
    return words[text.lower()]


YEAR = 365.0 * 24 * 3600

SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("max_attempts", 3, whole(1, 1_000_000), "runs in all, the first included (also: max_retries)"),
        Setting("backoff_base", 2.0, number(1, 1000), "after failed run n, wait base ** n seconds"),
        Setting("max_backoff_seconds", 300.0, number(0, YEAR), "and never longer than this"),
        Setting("backoff_jitter", False, yes_or_no, "spread each back-off evenly over (0, delay]"),
        Setting("job_timeout_seconds", 3600.0, number_or_never(0.001, YEAR), "how long one run of a command may take"),
        Setting("lock_lease_seconds", 30.0, number(0.3, 86400), "silence after which a pool elsewhere is given up"),
        Setting(
            "heartbeat_seconds",
            5.0,
            number(0.05, 3600),
            "a pool shows itself at least this often",
            "COVEY_WORKER_HEARTBEAT_INTERVAL",
        ),
        Setting(
            "poll_seconds",
            0.1,
            number(0.001, 60),
            "an idle pool looks this often where no bell reaches it",
            "COVEY_WORKER_POLL_INTERVAL",
        ),
        Setting(
            "max_poll_seconds",
            1.0,
            number(0.001, 600),
            "and this seldom after long idling",
            "COVEY_WORKER_MAX_POLL_INTERVAL",
        ),
        Setting(
            "max_concurrency",
            50,
            whole(1, 10_000),
            "async tasks at a time in one worker",
            "COVEY_MAX_CONCURRENCY",
        ),
        Setting(
            "max_startup_concurrency",
            10,
            whole(1, 1000),
            "workers that start at the same time",
            "COVEY_MAX_WORKER_STARTUP_CONCURRENCY",
        ),
        Setting(
            "keep_completed_seconds", 7 * 86400.0, number_or_never(0, 100 * YEAR), "then completed jobs are pruned"
        ),
        Setting("keep_cancelled_seconds", 86400.0, number_or_never(0, 100 * YEAR), "then cancelled jobs are pruned"),
        Setting("keep_dead_seconds", None, number_or_never(0, 100 * YEAR), "then dead letters are pruned"),
        Setting("keep_events_seconds", 30 * 86400.0, number_or_never(0, 100 * YEAR), "then events are pruned"),
        Setting("durability", "full", choice("full", "normal"), "normal: a power cut may undo the last moments"),
    )
}

ALIASES = {"max_retries": "max_attempts", "max_backoff": "max_backoff_seconds", "timeout": "job_timeout_seconds"}


def find(name: str) -> Setting:
    """The setting of that name, in any accepted spelling."""
    plain = name.strip().lower().replace("-", "_")
    setting = SETTINGS.get(ALIASES.get(plain, plain))
    if setting is None:
        raise InvalidInput(f"no setting {name!r}; known: {', '.join(SETTINGS)}")
    return setting


def parse(name: str, text: str) -> tuple[str, Any]:
    """(canonical name, value), or InvalidInput that says what would be accepted."""
    setting = find(name)
    if setting.name == "max_attempts" and text.strip() == "0":
        raise InvalidInput(f"{name} counts all runs, so 0 would never run a job; 1 means one run and no retry")
    try:
        return setting.name, setting.parse(text.strip())
    except ValueError:
        raise InvalidInput(f"{name}={text!r} does not fit: it takes {setting.parse.__doc__}") from None


def effective(stored: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Every setting's value: environment over database over default."""
    values: dict[str, Any] = {}
    for setting in SETTINGS.values():
        values[setting.name] = setting.default
        if setting.name in stored:
            values[setting.name] = setting.parse(stored[setting.name])
        if setting.env and environ.get(setting.env):
            values[setting.name] = parse(setting.name, environ[setting.env])[1]
    return values
