"""What a job must look like before it is stored. One line says what is wrong, which, and what to do."""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..errors import InvalidInput, NotFound, TooLarge
from .codec import clean, is_json
from .model import MAX_PAYLOAD, NEVER, Report
from .turn import Caller

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,199}")
PLAIN = r"^[^\u0000-\u001f\u007f-\u009f]+$"  # text that is a name
YEAR_10000 = 253_402_300_800 * 1_000_000
LONGEST_BACKOFF_S = 1e9
BACKOFF = f"back-off needs a base of at least 1 and a cap of 0 to {LONGEST_BACKOFF_S:,.0f} seconds"
MAX_LABELS = 1000


def check_caller(caller: Caller) -> None:
    check_text(caller.host, "caller's host", most=300)
    check_text(caller.boot, "caller's boot", most=300)
    if not 0 < caller.pid < 1 << 32 or not 0 <= caller.ticks < 1 << 63:
        raise InvalidInput(f"caller: there is no process {caller.pid} that began at {caller.ticks}")
    if not 0 < caller.lease_s <= 86_400:
        raise InvalidInput(f"caller's lease_s {caller.lease_s!r}: a number of seconds, at most 86,400")


def check_limits(concurrency: object, max_depth: object) -> None:
    limits = concurrency is not None and concurrency is not UNSET
    if limits and (type(concurrency) is not int or not 1 <= concurrency <= 1_000_000):
        raise InvalidInput(f"concurrency {concurrency!r}: how many jobs at a time, from 1 on; none for no limit")
    if max_depth is not UNSET and (type(max_depth) is not int or not 0 <= max_depth <= 1000):
        raise InvalidInput(f"max_depth {max_depth!r}: from 0 (no children) to 1000")


def check_args(args: str, task: str) -> None:
    if problem := _json_problem(args):
        kind = TooLarge if "limit" in problem else InvalidInput
        raise kind(f"arguments of {task}: {problem}")


def _json_problem(text: str) -> str | None:
    # A character takes at most four bytes, so most texts need no counting.
    if len(text) * 4 > MAX_PAYLOAD and (size := len(text.encode("utf-8", "replace"))) > MAX_PAYLOAD:
        return f"{size:,} bytes of JSON, the limit is {MAX_PAYLOAD:,}; pass a path or an id instead"
    return None if is_json(text) else "this is not JSON"


def storable(report: Report) -> Report:
    """The report as it can be written: nothing that a task says may keep its turn from being stored."""
    if report.result is report.info is report.error is report.detail is None and (report.worker or "").isascii():
        return report  # says nothing: the usual case
    changes: dict[str, Any] = {}
    for name in ("error", "detail", "worker"):
        text = getattr(report, name)
        if text is not None and (not text.isascii() or "\x00" in text):
            changes[name] = clean(text)
    if report.info is not None and not is_json(report.info):
        changes["info"] = None
    if report.result is not None and (problem := _json_problem(report.result)):
        error = f"its result cannot be stored: {problem}"
        changes |= {"outcome": "abort", "error": error, "result": None, "spawned": None}
    return replace(report, **changes) if changes else report


def check_text(text: str, what: str, *, most: int) -> str:
    if not text or len(text) > most:
        raise InvalidInput(f"{what}: needs 1 to {most} characters, got {len(text)}")
    if text.isascii() and text.isprintable():
        return text
    if bad := next((c for c in text if unicodedata.category(c) in ("Cc", "Cs")), None):
        raise InvalidInput(f"{what}: the character U+{ord(bad):04X} cannot be stored in a name")
    return text


def is_unicode(text: str) -> bool:
    """Whether it can be stored, sent and compared at all: bytes that are not UTF-8 arrive as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_refs(refs: Iterable[str | int]) -> None:
    """NotFound for what can be nobody's key: there is no need to ask a database or a server for it."""
    for ref in refs:
        if isinstance(ref, str) and not is_unicode(ref):
            raise NotFound(f"no job with the key {ref!r}; `covey list` shows what there is")


def check_filter(**texts: str | None) -> None:
    """InvalidInput for a name that no job can have."""
    for what, text in texts.items():
        if text is not None and not is_unicode(text):
            raise InvalidInput(f"{what} {text!r}: this is not text, so no job can have it")


# ── what is said of a job ───────────────────────────────────────────────────────────────────────────────────────────


def is_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what}: a {type(value).__qualname__} was given; pass a string")
    return value


def is_number(value: Any, what: str, needs: str = "a number of seconds") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{what} {value!r}: {needs}")
    return value


def refuse_nul(text: Any, what: str) -> str:
    if "\x00" in is_text(text, what):
        raise InvalidInput(f"{what}: holds a NUL character, which no program can receive; remove it")
    return text  # type: ignore[no-any-return]


def check_queue(name: str, what: str = "queue") -> str:
    if not NAME.fullmatch(is_text(name, what)):
        raise InvalidInput(f"{what} {name!r}: use letters, digits and _ . : @ / + -, at most 200")
    return name


def check_key(key: str, what: str) -> str:
    check_text(is_text(key, what), what, most=300)
    if key.isdigit():
        raise InvalidInput(f"{what} {key!r}: digits only would be taken for an id; put a letter into it")
    return key


def check_choice(word: str, what: str, words: tuple[str, ...]) -> str:
    if word not in words:
        listed = " or ".join(map(repr, words)) if len(words) == 2 else f"one of {', '.join(words)}"
        raise InvalidInput(f"{what} {word!r}: {listed}")
    return word


def check_flag(value: bool, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} {value!r}: true or false")
    return value


def check_labels(labels: Mapping[str, str], what: str = "labels") -> dict[str, str] | None:
    if not isinstance(labels, Mapping):
        raise InvalidInput(f"labels: a {type(labels).__qualname__} was given; pass a dict of strings")
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"labels: at most {MAX_LABELS:,}, got {len(labels):,}")
    for name, value in labels.items():
        check_text(is_text(name, "label"), "label", most=100)
        check_text(is_text(value, f"label {name!r}"), f"label {name!r}", most=1000)
    return dict(labels) or None


def check_env(env: Mapping[str, str], what: str = "env") -> dict[str, str]:
    """The variables a command gets on top of its worker's environment."""
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\x00" in name:
            raise InvalidInput(f"environment name {name!r}: needs text without '=' and NUL")
        # The value stays out of the message: it may be a secret.
        if not isinstance(value, str):
            raise InvalidInput(
                f"environment variable {name!r}: the value is a {type(value).__qualname__}, pass a string"
            )
        if "\x00" in value:
            raise InvalidInput(
                f"environment variable {name!r}: the value holds a NUL character, which no program can receive"
            )
    return dict(env)


def check_priority(priority: int, what: str = "priority") -> int:
    if type(priority) is not int or not -(2**31) <= priority < 2**31:
        raise InvalidInput(f"{what} {priority!r}: a whole number, higher runs first")
    return priority


def check_attempts(most: int, what: str = "max_attempts") -> int:
    if type(most) is not int or not 1 <= most <= 1_000_000:
        raise InvalidInput(f"{what} {most!r}: it counts all runs, so it starts at 1 (one run, no retry)")
    return most


def check_timeout(timeout_s: Any, what: str = "timeout") -> Any:
    if timeout_s == NEVER or timeout_s == math.inf:
        return NEVER
    return check_tree_timeout(timeout_s, what)


def check_tree_timeout(timeout_s: float, what: str = "tree_timeout") -> float:
    if not 0 < is_number(timeout_s, what) < 1e9:
        raise InvalidInput(f"{what} {timeout_s!r}: a number of seconds above 0")
    return timeout_s


def check_delay(delay_s: float, what: str = "delay") -> float:
    if not 0 <= is_number(delay_s, what) < 1e10:
        raise InvalidInput(f"{what} {delay_s!r}: a number of seconds, 0 or more")
    return delay_s


def check_run_at(run_at: int, what: str = "run_at") -> int:
    if type(run_at) is not int or not -YEAR_10000 < run_at < YEAR_10000:
        raise InvalidInput(f"{what} is after the year 9999; choose an earlier time")
    return run_at


def check_backoff_base(base: float, what: str = "backoff_base") -> float:
    # A whole number can be below infinity and still above every float, which is how it is stored.
    if not 1 <= is_number(base, what, "a number") <= sys.float_info.max:
        raise InvalidInput(BACKOFF)
    return base


def check_backoff_cap(cap_s: float, what: str = "max_backoff") -> float:
    if not 0 <= is_number(cap_s, what) <= LONGEST_BACKOFF_S:
        raise InvalidInput(BACKOFF)
    return cap_s
