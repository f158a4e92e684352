"""From what a caller asked for to a Spec, and what several options of it mean together.

The command line and the Python API both come through here, so a job means the same whoever enqueued it. What is said
of a job is in the words of a Spec: the names of its fields, and `env` of a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidInput
from . import codec
from .check import check_args, check_env, check_text, is_text, refuse_nul
from .model import KINDS, MAX_PAYLOAD, SHELL, Kind, Spec
from .options import FIELDS, check_options


def shell_spec(
    command: str | Sequence[str], *, env: Mapping[str, str] | None = None, created_by: str | None = None, **said: Any
) -> Spec:
    """A job that runs the command."""
    arguments = command_arguments(command)
    if env:
        arguments["env"] = check_env(env)
    text = codec.encode(arguments, what="command")
    return _checked(Spec(task=SHELL, kind="command", args=text, created_by=created_by, **_understood(said)))


def task_spec(
    task: str,
    *,
    kind: Kind = "sync",
    args: str | None = None,
    joins: bool = False,
    created_by: str | None = None,
    **said: Any,
) -> Spec:
    """A job that runs a Python task; ``args`` is JSON text already."""
    if task == SHELL:
        raise InvalidInput(
            "'shell' is the built-in task for commands; use app.shell(…) for it, or name the task otherwise"
        )
    made = Spec(
        task=is_text(task, "task"), kind=kind, args=args, joins=joins, created_by=created_by, **_understood(said)
    )
    return _checked(made)


def _understood(said: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, as a Spec has it."""
    found = {name: value for name, value in said.items() if value is not None}
    for name, value in found.items():
        option = FIELDS[name]
        found[name] = option.form.check(value, option.name)
    return found


# ── what can be stored ──────────────────────────────────────────────────────────────────────────────────────────────


def check_spec(spec: Spec) -> Spec:
    """The spec itself, or InvalidInput."""
    if spec.kind not in KINDS:
        raise InvalidInput(f"kind {spec.kind!r}: one of {', '.join(KINDS)}")
    check_text(spec.task, "task", most=300)
    if spec.created_by is not None:
        check_text(spec.created_by, "created_by", most=200)
    check_options(spec)
    if spec.cache is not None:
        check_parts(spec.cache.parts, spec)
    if spec.args is not None:
        check_args(spec.args, spec.task)
    return _checked(spec)


def check_parts(parts: str, spec: Spec) -> None:
    """They are parts of this very call: under its key what it makes is given to others."""
    from .cache_key import is_call, read  # for those who cache

    if len(parts) > MAX_PAYLOAD:
        raise InvalidInput(f"cache: parts of {len(parts):,} characters, the limit is {MAX_PAYLOAD:,}; name fewer files")
    try:
        same = is_call(read(parts), spec.task, spec.args)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"cache: these are no parts of a key ({error}); see docs/cache.md") from None
    if not same:
        raise InvalidInput(f"cache: these are the parts of another call, not of {spec.task} with these arguments")


def _checked(spec: Spec) -> Spec:
    """What options mean together: each rule that looks at more than one of them."""
    if spec.run_at is not None and spec.delay_s is not None:
        raise InvalidInput("run_at and delay both say when the job starts; give one of them")
    return spec


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


def command_line(arguments: Mapping[str, Any]) -> str | None:
    """A shell job's command as a person would type it."""
    if "argv" in arguments:
        import shlex

        return shlex.join(arguments["argv"])
    found: str | None = arguments.get("command")
    return found
