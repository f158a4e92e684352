"""A job as a JSON object: the same fields on the command line, in a file of jobs, and in what a command spawns."""

from __future__ import annotations

import json
import os.path
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ..errors import InvalidInput
from . import codec, specs
from .model import Spec
from .times import moment, seconds

FIELDS = [
    "id",
    "key",
    "command",
    "argv",
    "task",
    "args",
    "kind",
    "queue",
    "priority",
    "run_at",
    "delay",
    "max_attempts",
    "max_retries",
    "timeout",
    "cwd",
    "env",
    "batch",
    "labels",
    "if_exists",
    "keep_background",
    "unique_key",
    "on_error",
    "mode",
    "tree_timeout",
]


def spec_of(fields: Mapping[str, Any], *, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> Spec:
    """The job that an object describes; what it leaves open comes from ``defaults``."""
    options = dict(defaults)
    options.update(_plain(fields))
    _take_key(fields, options)
    _take_attempts(fields, options)
    _take_start(fields, options)
    if "timeout" in fields:
        options["timeout_s"] = timeout(fields["timeout"])
    if fields.get("tree_timeout") is not None:
        options["tree_timeout_s"] = _seconds(fields["tree_timeout"], "tree_timeout")
    if "env" in fields:
        options["env"] = {**(options.get("env") or {}), **_object(fields["env"], "env")}
    if "labels" in fields:
        options["labels"] = {**(options.get("labels") or {}), **_object(fields["labels"], "labels")}
    _take_place(fields, options, defaults.get("cwd"))
    return _command_or_task(fields, options, settings)


def timeout(value: Any) -> float:
    """A number of seconds or a duration; null and `never` are no limit."""
    if value is None or (isinstance(value, str) and value.strip().lower() in ("never", "none", "off")):
        return float("inf")
    return _seconds(value, "timeout")


def fields_of(text: str, known: Iterable[str]) -> dict[str, Any]:
    """The fields of a JSON object, none of them twice and none unknown; InvalidInput says what is wrong with it."""
    try:
        fields = json.loads(text, object_pairs_hook=_no_twins, parse_constant=_no_constant, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"not a JSON object: {error.msg.lower()} at character {error.pos + 1}") from None
    except RecursionError:
        raise InvalidInput("the JSON object is nested too deeply") from None
    if not isinstance(fields, dict):
        raise InvalidInput(f'a JSON object is needed, as in {{"command": "…"}}; this is a {type(fields).__name__}')
    if unknown := [name for name in fields if name not in known]:
        raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(known)}")
    return fields


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"the field {twin!r} is there twice; which one is meant?")
    return fields


def _no_constant(word: str) -> NoReturn:
    raise InvalidInput(f"{word} is not JSON; use a number, a string or null")


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python's own limit, against texts that would take hours to read
        most = sys.get_int_max_str_digits()
        raise InvalidInput(
            f"a number of {len(digits.lstrip('-')):,} digits; at most {most:,} can be read, pass a string"
        ) from None


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that need no translation; null means: as if it were not there."""
    names = ("queue", "priority", "cwd", "batch", "if_exists", "keep_background", "unique_key", "on_error")
    taken = {name: fields[name] for name in names if fields.get(name) is not None}
    if fields.get("mode") is not None:
        taken["child_mode"] = fields["mode"]
    if not isinstance(taken.get("keep_background", False), bool):
        raise InvalidInput(f"keep_background {taken['keep_background']!r}: true or false")
    return taken


def _take_key(fields: Mapping[str, Any], options: dict[str, Any]) -> None:
    named = [fields[name] for name in ("id", "key") if fields.get(name) is not None]
    if len(named) == 2 and named[0] != named[1]:
        raise InvalidInput("id and key are two names of one thing; give one of them")
    if named:
        key = named[0]
        options["key"] = str(key) if type(key) is int else specs.is_text(key, "id")


def _take_attempts(fields: Mapping[str, Any], options: dict[str, Any]) -> None:
    given = {name: fields[name] for name in ("max_attempts", "max_retries") if fields.get(name) is not None}
    if len(set(map(repr, given.values()))) > 1:
        raise InvalidInput("max_attempts and max_retries are two names of one thing; give one of them")
    for name, value in given.items():
        options["max_attempts"] = attempts(value, name)


def _take_place(fields: Mapping[str, Any], options: dict[str, Any], here: str | None) -> None:
    """A directory as the caller wrote it is meant from where the caller is: the worker is somewhere else."""
    cwd = fields.get("cwd")
    if here and cwd and isinstance(cwd, str) and not os.path.isabs(cwd):
        options["cwd"] = os.path.normpath(os.path.join(here, cwd))


def attempts(value: Any, name: str) -> int:
    """How often a job may run in all."""
    if type(value) is not int:
        raise InvalidInput(f"{name} {value!r}: a whole number, 1 or more")
    if value == 0:
        raise InvalidInput(f"{name} 0: it counts all runs, so 0 would never run the job; 1 is one run and no retry")
    return value


def _take_start(fields: Mapping[str, Any], options: dict[str, Any]) -> None:
    given = [name for name in ("run_at", "delay") if fields.get(name) is not None]
    if given:
        options["run_at"] = options["delay_s"] = None
    for name in given:
        if name == "run_at":
            options["run_at"] = moment(specs.is_text(fields["run_at"], "run_at"), "run_at")
        else:
            options["delay_s"] = _seconds(fields["delay"], "delay")


def _seconds(value: Any, what: str) -> float:
    if isinstance(value, str):
        return seconds(value, what)
    number = specs.is_number(value, what)
    assert number is not None
    return number


def _object(value: Any, what: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f'{what}: an object with strings is needed, as in {{"name": "value"}}')
    return value


def _command_or_task(fields: Mapping[str, Any], options: dict[str, Any], settings: Mapping[str, Any]) -> Spec:
    what = [name for name in ("command", "argv", "task") if fields.get(name) is not None]
    if len(what) != 1:
        raise InvalidInput("one of command, argv and task is needed" + (f", not {' and '.join(what)}" if what else ""))
    if what[0] == "task":
        return _task(fields, options, settings)
    for name in ("args", "kind"):
        if fields.get(name) is not None:
            raise InvalidInput(f"{name} belongs to a task; a command with its arguments is a list in argv")
    command = fields[what[0]]
    if what[0] == "argv" and not isinstance(command, list):
        raise InvalidInput('argv: a list of strings is needed, as in ["ls", "-l"]')
    if what[0] == "command" and not isinstance(command, str):
        raise InvalidInput("command: a string is needed; a list of words goes into argv")
    return specs.shell_spec(command, settings=settings, **options)


def _task(fields: Mapping[str, Any], options: dict[str, Any], settings: Mapping[str, Any]) -> Spec:
    for name in ("env", "keep_background", "cwd"):
        if fields.get(name) is not None:
            raise InvalidInput(f"{name} is for commands; the task {fields['task']!r} cannot have it")
        options.pop(name, None)
    given = fields.get("args")
    if not isinstance(given, list | dict | None):
        raise InvalidInput("args: a list, or an object with names, is needed")
    payload: list[Any] = [given, {}] if isinstance(given, list) else [[], given]
    text = codec.encode(payload, what="args") if given else None
    kind: Any = fields.get("kind") or "sync"
    if kind not in ("sync", "async"):
        raise InvalidInput(f"kind {kind!r}: sync, or async for a task that is an async function")
    return specs.task_spec(specs.is_text(fields["task"], "task"), settings=settings, kind=kind, args=text, **options)
