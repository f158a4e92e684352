"""What a job must look like before it is stored. One line says what is wrong, which, and what to do."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..errors import InvalidInput, NotFound, TooLarge
from .codec import clean, is_json
from .model import KINDS, MAX_PAYLOAD, MODES, ON_ERROR, Report, Spec
from .turn import Caller

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,199}")
YEAR_10000 = 253_402_300_800 * 1_000_000
LONGEST_BACKOFF_S = 1e9
MAX_LABELS = 1000


def check_spec(spec: Spec) -> Spec:
    """The spec itself, or InvalidInput."""
    check_queue(spec.queue)
    if spec.kind not in KINDS:
        raise InvalidInput(f"kind {spec.kind!r}: one of {', '.join(KINDS)}")
    check_text(spec.task, "task", most=300)
    check_key(spec.key, "key")
    check_key(spec.unique_key, "unique_key")
    if spec.batch is not None:
        check_text(spec.batch, "batch", most=200)
    if spec.cwd is not None:
        check_text(spec.cwd, "cwd", most=4096)
    if spec.created_by is not None:
        check_text(spec.created_by, "created_by", most=200)
    check_labels(spec.labels)
    for name, value in (spec.labels or {}).items():
        check_text(name, "label", most=100)
        check_text(value, f"label {name!r}", most=1000)
    check_priority(spec.priority)
    check_attempts(spec.policy.max_attempts)
    check_timeout(spec.policy.timeout_s)
    check_tree(spec)
    check_delay(spec.delay_s)
    check_run_at(spec.run_at)
    # A whole number can be below infinity and still above every float, which is how it is stored.
    base_fits = 1 <= spec.policy.backoff_base <= sys.float_info.max
    if not base_fits or not 0 <= spec.policy.backoff_cap_s <= LONGEST_BACKOFF_S:
        raise InvalidInput(f"back-off needs a base of at least 1 and a cap of 0 to {LONGEST_BACKOFF_S:,.0f} seconds")
    if spec.args is not None:
        check_args(spec)
    return spec


def check_labels(labels: Mapping[str, str] | None) -> None:
    if labels is not None and len(labels) > MAX_LABELS:
        raise InvalidInput(f"labels: at most {MAX_LABELS:,}, got {len(labels):,}")


def check_tree(spec: Spec) -> None:
    if spec.on_error not in ON_ERROR:
        raise InvalidInput(f"on_error {spec.on_error!r}: one of {', '.join(ON_ERROR)}")
    if spec.child_mode is not None and spec.child_mode not in MODES:
        raise InvalidInput(f"mode {spec.child_mode!r}: one of {', '.join(MODES)}")
    if spec.tree_timeout_s is not None and not 0 < spec.tree_timeout_s < 1e9:
        raise InvalidInput(f"tree_timeout {spec.tree_timeout_s!r}: a number of seconds above 0")


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


def check_args(spec: Spec) -> None:
    if problem := _json_problem(spec.args or ""):
        kind = TooLarge if "limit" in problem else InvalidInput
        raise kind(f"arguments of {spec.task}: {problem}")


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


def check_run_at(run_at: int | None) -> None:
    if run_at is not None and not -YEAR_10000 < run_at < YEAR_10000:
        raise InvalidInput("run_at is too far away; the year must be before 10000")


def check_queue(name: str) -> str:
    if not NAME.fullmatch(name):
        raise InvalidInput(f"queue {name!r}: use letters, digits and _ . : @ / + -, at most 200")
    return name


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


def check_key(key: str | None, what: str) -> None:
    if key is None:
        return
    check_text(key, what, most=300)
    if key.isdigit():
        raise InvalidInput(f"{what} {key!r}: digits only would be taken for an id; put a letter into it")


def check_priority(priority: int) -> None:
    if type(priority) is not int or not -(2**31) <= priority < 2**31:
        raise InvalidInput(f"priority {priority!r}: a whole number, higher runs first")


def check_attempts(max_attempts: int) -> None:
    if type(max_attempts) is not int or not 1 <= max_attempts <= 1_000_000:
        raise InvalidInput(f"max_attempts {max_attempts!r}: it counts all runs, so it starts at 1 (one run, no retry)")


def check_timeout(timeout_s: float | None) -> None:
    if timeout_s is not None and not 0 < timeout_s < 1e9:
        raise InvalidInput(f"timeout {timeout_s!r}: a number of seconds above 0")


def check_delay(delay_s: float | None) -> None:
    if delay_s is not None and not 0 <= delay_s < 1e10:
        raise InvalidInput(f"delay {delay_s!r}: a number of seconds, 0 or more")
