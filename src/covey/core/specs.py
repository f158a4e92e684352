"""From what a caller asked for to a Spec: the command or the arguments as JSON, the policy from the settings.

The command line and the Python API both come through here, so a job means the same whoever enqueued it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from ..errors import InvalidInput
from . import codec
from .model import SHELL, Kind, Mode, OnError, Policy, Spec

IfExists = Literal["error", "return"]

LATEST = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z: no view can show a later instant


def shell_spec(
    command: str | Sequence[str],
    *,
    settings: Mapping[str, Any],
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    queue: str = "default",
    priority: int = 0,
    key: str | None = None,
    if_exists: IfExists = "error",
    unique_key: str | None = None,
    run_at: int | None = None,
    delay_s: float | None = None,
    max_attempts: int | None = None,
    timeout_s: float | None = None,
    backoff_base: float | None = None,
    backoff_cap_s: float | None = None,
    jitter: bool | None = None,
    batch: str | None = None,
    labels: Mapping[str, str] | None = None,
    keep_background: bool = False,
    on_error: OnError = "wait",
    child_mode: Mode | None = None,
    tree_timeout_s: float | None = None,
    created_by: str | None = None,
) -> Spec:
    """A job that runs the command; without a time-out of its own it gets the configured one (``math.inf``: none)."""
    arguments = command_arguments(command)
    if env:
        arguments["env"] = check_env(env)
    if cwd is not None:
        refuse_nul(cwd, "cwd")
    check_times(run_at, delay_s)
    if timeout_s is None:
        timeout_s = settings["job_timeout_seconds"]
    return Spec(
        task=SHELL,
        kind="command",
        args=codec.encode(arguments, what="command"),
        queue=is_text(queue, "queue"),
        priority=priority,
        delay_s=is_number(delay_s, "delay"),
        run_at=run_at,
        key=key if key is None else is_text(key, "key"),
        if_exists=check_if_exists(if_exists),
        unique_key=unique_key if unique_key is None else is_text(unique_key, "unique_key"),
        policy=policy(
            settings,
            max_attempts=max_attempts,
            timeout_s=timeout_s,
            backoff_base=backoff_base,
            backoff_cap_s=backoff_cap_s,
            jitter=jitter,
        ),
        cwd=cwd,
        batch=batch if batch is None else is_text(batch, "batch"),
        labels=check_labels(labels),
        created_by=created_by,
        keep_background=bool(keep_background),
        on_error=on_error,
        child_mode=child_mode,
        tree_timeout_s=is_number(tree_timeout_s, "tree_timeout"),
    )


def task_spec(
    task: str,
    *,
    settings: Mapping[str, Any],
    kind: Kind = "sync",
    args: str | None = None,
    queue: str = "default",
    priority: int = 0,
    key: str | None = None,
    if_exists: IfExists = "error",
    unique_key: str | None = None,
    run_at: int | None = None,
    delay_s: float | None = None,
    max_attempts: int | None = None,
    timeout_s: float | None = None,
    backoff_base: float | None = None,
    backoff_cap_s: float | None = None,
    jitter: bool | None = None,
    batch: str | None = None,
    labels: Mapping[str, str] | None = None,
    joins: bool = False,
    on_error: OnError = "wait",
    child_mode: Mode | None = None,
    tree_timeout_s: float | None = None,
    created_by: str | None = None,
) -> Spec:
    """A job that runs a Python task; ``args`` is JSON text already. Without a time-out of its own it has none."""
    if task == SHELL:
        raise InvalidInput(
            "'shell' is the built-in task for commands; use app.shell(…) for it, or name the task otherwise"
        )
    check_times(run_at, delay_s)
    return Spec(
        task=is_text(task, "task"),
        kind=kind,
        args=args,
        queue=is_text(queue, "queue"),
        priority=priority,
        delay_s=is_number(delay_s, "delay"),
        run_at=run_at,
        key=key if key is None else is_text(key, "key"),
        if_exists=check_if_exists(if_exists),
        unique_key=unique_key if unique_key is None else is_text(unique_key, "unique_key"),
        policy=policy(
            settings,
            max_attempts=max_attempts,
            timeout_s=timeout_s,
            backoff_base=backoff_base,
            backoff_cap_s=backoff_cap_s,
            jitter=jitter,
        ),
        batch=batch if batch is None else is_text(batch, "batch"),
        labels=check_labels(labels),
        created_by=created_by,
        joins=joins,
        on_error=on_error,
        child_mode=child_mode,
        tree_timeout_s=is_number(tree_timeout_s, "tree_timeout"),
    )


def policy(
    settings: Mapping[str, Any],
    *,
    max_attempts: int | None = None,
    timeout_s: float | None = None,
    backoff_base: float | None = None,
    backoff_cap_s: float | None = None,
    jitter: bool | None = None,
) -> Policy:
    """How the job is tried: what the caller said, else what is configured now."""
    if jitter is not None and not isinstance(jitter, bool):
        raise InvalidInput(f"jitter {jitter!r}: true or false")
    is_number(timeout_s, "timeout")
    is_number(backoff_base, "backoff_base")
    is_number(backoff_cap_s, "max_backoff")
    return Policy(
        max_attempts=settings["max_attempts"] if max_attempts is None else max_attempts,
        timeout_s=None if timeout_s == math.inf else timeout_s,
        backoff_base=settings["backoff_base"] if backoff_base is None else backoff_base,
        backoff_cap_s=settings["max_backoff_seconds"] if backoff_cap_s is None else backoff_cap_s,
        jitter=settings["backoff_jitter"] if jitter is None else jitter,
    )


# ── what a command may look like ────────────────────────────────────────────────────────────────────────────────────


def command_arguments(command: str | Sequence[str]) -> dict[str, Any]:
    """The payload of a shell job: one line for the shell, or a program and its arguments."""
    if isinstance(command, str):
        if not command.strip():
            raise InvalidInput("the command is empty; pass something to run, for example 'echo hello'")
        refuse_nul(command, "command")
        return {"command": command}
    if isinstance(command, bytes) or not isinstance(command, Sequence):
        raise InvalidInput(f"the command is a {type(command).__qualname__}; pass a string or a list of strings")
    argv = list(command)
    for place, word in enumerate(argv):
        refuse_nul(is_text(word, f"command[{place}]"), f"command[{place}]")
    if not argv or not argv[0].strip():
        raise InvalidInput("the command is empty; the first word names the program to run")
    return {"argv": argv}


def check_env(env: Mapping[str, str]) -> dict[str, str]:
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


# ── one line that says what is wrong ────────────────────────────────────────────────────────────────────────────────


def refuse_nul(text: str, what: str) -> None:
    if "\x00" in is_text(text, what):
        raise InvalidInput(f"{what}: holds a NUL character, which no program can receive; remove it")


def check_times(run_at: int | None, delay_s: float | None) -> None:
    if run_at is not None and delay_s is not None:
        raise InvalidInput("run_at and delay both say when the job starts; give one of them")
    if run_at is not None and run_at > LATEST:
        raise InvalidInput("run_at is after the year 9999; choose an earlier time")


def check_if_exists(word: str) -> IfExists:
    if word not in ("error", "return"):
        raise InvalidInput(f"if_exists {word!r}: 'error' or 'return'")
    return cast(IfExists, word)


def check_labels(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise InvalidInput(f"labels: a {type(labels).__qualname__} was given; pass a dict of strings")
    for name, value in labels.items():
        is_text(name, "label")
        is_text(value, f"label {name!r}")
    return dict(labels) or None


def is_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what}: a {type(value).__qualname__} was given; pass a string")
    return value


def is_number(value: Any, what: str) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(
            f"{what} {value!r}: a number of seconds" if what != "backoff_base" else f"{what} {value!r}: a number"
        )
    return cast("float | None", value)


def command_line(arguments: Mapping[str, Any]) -> str | None:
    """A shell job's command as a person would type it."""
    if "argv" in arguments:
        import shlex

        return shlex.join(arguments["argv"])
    found: str | None = arguments.get("command")
    return found
