"""A job as a JSON object: the same fields on the command line, in a file of jobs, and in what a command spawns."""

from __future__ import annotations

import json
import os.path
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ..errors import InvalidInput
from . import codec, specs
from .check import is_text
from .model import SHELL, Spec
from .options import IN_JSON, Option

FIELDS = ("command", "argv", "task", "args", "kind", *(name for option in IN_JSON for name in option.names))


def spec_of(fields: Mapping[str, Any], *, defaults: Mapping[str, Any]) -> Spec:
    """The job that an object describes; what it leaves open comes from ``defaults``, in the words of a Spec."""
    words = dict(defaults)
    if any(fields.get(name) is not None for name in ("run_at", "delay")):
        words["run_at"] = words["delay_s"] = None
    for option in IN_JSON:
        value = _value(option, fields)
        if value and option.form.word == list[str]:
            value = {**(words.get(option.field) or {}), **value}
        if value is not None:
            words[option.field] = value
    here, cwd = defaults.get("cwd"), fields.get("cwd")
    if here and cwd and isinstance(cwd, str) and not os.path.isabs(cwd):
        # A directory as the caller wrote it is meant from where the caller is: the worker is somewhere else.
        words["cwd"] = os.path.normpath(os.path.join(here, cwd))
    return _command_or_task(fields, words)


def _value(option: Option, fields: Mapping[str, Any]) -> Any:
    """What the object says of it; null means as if it were not there."""
    given = {name: fields[name] for name in option.names if fields.get(name) is not None}
    if len({repr(value) for value in given.values()}) > 1:
        raise InvalidInput(f"{' and '.join(given)} are two names of one thing; give one of them")
    said = [option.form.json(value, name) for name, value in given.items()]
    return said[0] if said else option.form.null if option.name in fields else None


def check_known(fields: Mapping[str, Any], known: Iterable[str] = FIELDS) -> None:
    if unknown := [name for name in fields if name not in known]:
        raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(known)}")


def without_what_is_read_only(fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A job as Covey prints it, as one to be enqueued; and what of it says how the job was, and is left out."""
    from .view import JobView

    read_only = {*JobView.__struct_fields__, "history"} - {*FIELDS}
    left_out = [name for name in fields if name in read_only]
    if not left_out:
        return dict(fields), []
    rest = {name: value for name, value in fields.items() if name not in read_only}
    if type(rest.get("id")) is int:
        left_out.append("id")
        del rest["id"]
    if rest.get("run_at") is not None and fields.get("state") not in ("scheduled", "pending", None):
        left_out.append("run_at")
        del rest["run_at"]
    said = rest.get("args")
    if rest.get("task") == SHELL:
        del rest["task"]
        rest.pop("kind", None)
        if isinstance(said, dict):
            del rest["args"]
            if "argv" in said:
                rest["argv"] = said["argv"]
                rest.pop("command", None)
            if env := {**(said.get("env") or {}), **(rest.get("env") or {})}:
                rest["env"] = env
    elif isinstance(said, list) and len(said) == 2 and isinstance(said[0], list) and isinstance(said[1], dict | None):
        if said[0] and said[1]:
            raise InvalidInput("args: with and without names at once, which no JSON object can say; give names to all")
        rest["args"] = said[0] or said[1]
    return rest, left_out


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
    if known:
        check_known(fields, known)
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


def _command_or_task(fields: Mapping[str, Any], words: dict[str, Any]) -> Spec:
    what = [name for name in ("command", "argv", "task") if fields.get(name) is not None]
    if len(what) != 1:
        raise InvalidInput("one of command, argv and task is needed" + (f", not {' and '.join(what)}" if what else ""))
    if what[0] == "task":
        return _task(fields, words)
    for name in ("args", "kind"):
        if fields.get(name) is not None:
            raise InvalidInput(f"{name} belongs to a task; a command with its arguments is a list in argv")
    command = fields[what[0]]
    if what[0] == "argv" and not isinstance(command, list):
        raise InvalidInput('argv: a list of strings is needed, as in ["ls", "-l"]')
    if what[0] == "command" and not isinstance(command, str):
        raise InvalidInput("command: a string is needed; a list of words goes into argv")
    return specs.shell_spec(command, **words)


def _task(fields: Mapping[str, Any], words: dict[str, Any]) -> Spec:
    for option in IN_JSON:
        if option.of == "command":
            if fields.get(option.name) is not None:
                raise InvalidInput(f"{option.name} is for commands; the task {fields['task']!r} cannot have it")
            words.pop(option.field, None)
    given = fields.get("args")
    if not isinstance(given, list | dict | None):
        raise InvalidInput("args: a list, or an object with names, is needed")
    payload: list[Any] = [given, {}] if isinstance(given, list) else [[], given]
    text = codec.encode(payload, what="args") if given else None
    kind: Any = fields.get("kind") or "sync"
    if kind not in ("sync", "async"):
        raise InvalidInput(f"kind {kind!r}: sync, or async for a task that is an async function")
    return specs.task_spec(is_text(fields["task"], "task"), kind=kind, args=text, **words)
