"""Settings that are allowed, each for itself, and still make no sense; pools that work by others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import CoveyError
from .check_result import Finding, bad, ok, some, warn

if TYPE_CHECKING:
    from ...engine.engine import Engine

MANY_ATTEMPTS = 100
BUSY_POLL_S = 0.01


def look(engine: Engine) -> Iterator[Finding]:
    try:
        settings = engine.settings()
    except (CoveyError, ValueError) as error:
        yield bad(
            "settings", f"cannot be read: {error}", "`covey config list`; correct the environment, or set it anew"
        )
        return
    odd = list(_odd(settings))
    yield from odd
    if not odd:
        lease_s, beat_s = settings["lock_lease_seconds"], settings["heartbeat_seconds"]
        yield ok("settings", f"lease {lease_s:g} s, heartbeat {beat_s:g} s, {settings['max_attempts']} attempts")
    yield from _pools(engine)


def _odd(settings: Mapping[str, Any]) -> Iterator[Finding]:
    lease_s, beat_s = settings["lock_lease_seconds"], settings["heartbeat_seconds"]
    if lease_s < 3 * beat_s:
        text = f"a lease of {lease_s:g} s with a heartbeat every {beat_s:g} s: one late beat, and a pool is given up"
        yield warn("settings", text, "lock_lease_seconds at least three times heartbeat_seconds; see the environment")
    if settings["poll_seconds"] > settings["max_poll_seconds"]:
        yield warn(
            "settings", "poll_seconds is longer than max_poll_seconds", "`covey config set` the one or the other"
        )
    if settings["poll_seconds"] < BUSY_POLL_S:
        text = f"poll_seconds {settings['poll_seconds']:g}: where no bell reaches it, an idle pool never rests"
        yield warn("settings", text, f"at least {BUSY_POLL_S:g}")
    if settings["max_attempts"] > MANY_ATTEMPTS:
        text = f"max_attempts {settings['max_attempts']}: a job that can only fail is tried that often"
        yield warn("settings", text, "`covey config set max_attempts 3`, and more for the jobs that need it")
    if settings["max_backoff_seconds"] < 1 and settings["max_attempts"] > 3:
        text = f"max_backoff_seconds {settings['max_backoff_seconds']:g}: what fails is tried again at once"
        yield warn("settings", text, "`covey config set max_backoff_seconds 300`")
    if settings["keep_completed_seconds"] is None:
        yield warn("settings", "completed jobs are kept for ever", "`covey config set keep_completed_seconds 604800`")


def _pools(engine: Engine) -> Iterator[Finding]:
    from ... import __version__

    others = [f"{pool.name} ({pool.version})" for pool in engine.pool_views() if pool.version != __version__]
    if others:
        yield warn(
            "pools", f"other versions of Covey than {__version__}: {some(others)}", "restart them after an upgrade"
        )
