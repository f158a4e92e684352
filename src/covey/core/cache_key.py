"""When two runs are the same run: a versioned list of named parts, and the key, which is its digest.

Whoever enqueues makes the parts, and whoever runs the job makes them again of what really ran. The key is made of them
by the engine alone, with the job's queue and that queue's salt: nobody hits, or waits for, what another queue has made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from .model import SHELL

VERSION = "covey-key-1"  # another list of parts, or another way to write one: another word, and old records are unused
LONG = 2000  # characters of JSON; longer arguments are in the key by their digest
NAMES = ("task", "code", "arguments", "inputs", "outputs", "env", "tools")
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
Form = str  # of an input: file, exec (an executable file), absent


class Parts(Struct, frozen=True):
    """What a run depends on. A part that cannot be known makes no key: whoever builds the parts refuses."""

    task: str
    code: Any = None  # {"version": …} or {"python": …, "modules": {name: digest}}
    arguments: Any = None
    inputs: Sequence[
        Sequence[Any]
    ] = ()  # (path relative to the root, form, digest), and patterns as (pattern, "pattern", None)
    outputs: Sequence[str] = ()  # paths relative to the root
    env: Mapping[str, str | None] | None = None  # name → digest of the value, None: unset
    tools: Mapping[str, str] | None = None  # file → digest, or probe → digest of what it said

    def text(self) -> str:
        """One text for equal parts, whatever the order of dicts, files or names."""
        return canonical(
            [
                self.task,
                self.code,
                self.arguments,
                sorted(map(list, self.inputs), key=canonical),
                sorted(self.outputs),
                dict(self.env or {}),
                dict(self.tools or {}),
            ]
        )


def read(text: str) -> Parts:
    """The parts again; ValueError for what are no parts of this version."""
    found = json.loads(text)
    if not isinstance(found, list) or len(found) != len(NAMES) or not isinstance(found[0], str):
        raise ValueError(f"a list of {len(NAMES)} parts is needed: {', '.join(NAMES)}")
    return Parts(*found)


def key_of(parts: str, queue: str, salt: str = "") -> str:
    """The key. ``parts`` is the last of four lines and JSON has no line break in it: no two lists share a text."""
    return digest("\n".join((VERSION, canonical(salt), canonical(queue), parts)).encode())


def digest(data: bytes) -> str:
    from hashlib import sha256  # two milliseconds of a start, for whoever caches

    return sha256(data).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys. 1, 1.0, true and "1" stay four different texts."""
    return _encode(value)


# ── what a job's row says of its parts ──────────────────────────────────────────────────────────────────────────────


def call_of(task: str, payload: str | None) -> tuple[Any, dict[str, str | None]]:
    """(arguments, env) as they stand in the parts, of a job's task and its payload."""
    given = [[], {}] if payload is None else json.loads(payload)
    env: dict[str, str | None] = {}
    if task == SHELL and isinstance(given, dict):
        given = dict(given)
        given_env = given.pop("env", None) or {}
        env = env_part({name: text for name, text in given_env.items() if not name.startswith("COVEY_")})
        given.pop("cache", None)  # the files that it names are parts of their own
    return shortened(given), env


def shortened(value: Any) -> Any:
    text = canonical(value)
    return value if len(text) <= LONG else {"sha256": digest(text.encode()), "length": len(text)}


def env_part(values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Never the values: they may be secrets, and parts are shown. Unset is another thing than empty."""
    return {name: None if text is None else digest(f"{name}={text}".encode()) for name, text in values.items()}


def is_call(parts: Parts, task: str, payload: str | None) -> bool:
    """Whether these are parts of that call: the same task with the same arguments, and no less of the environment."""
    arguments, env = call_of(task, payload)
    told = parts.env or {}
    same = canonical(parts.arguments) == canonical(arguments)
    return parts.task == task and same and all(name in told and told[name] == value for name, value in env.items())


# ── why one key is not another ──────────────────────────────────────────────────────────────────────────────────────


def differences(was: Parts, now: Parts) -> list[str]:
    """In words, part by part, what is different; nothing if the parts are equal."""
    lines: list[str] = []
    if was.task != now.task:
        lines.append(f"task: was {was.task}, is {now.task}")
    lines += _of_code(was.code, now.code)
    lines += _of_arguments(was.arguments, now.arguments)
    lines += _of_inputs(was.inputs, now.inputs)
    lines += _of_names("outputs", was.outputs, now.outputs)
    lines += _of_values("env", was.env or {}, now.env or {})
    lines += _of_values("tools", was.tools or {}, now.tools or {})
    return lines


def nearest(now: Parts, records: Iterable[tuple[Any, Parts]]) -> tuple[Any, list[str]] | None:
    """The record that differs in the fewest places (of equal ones the first), and what these are."""
    best: tuple[Any, list[str]] | None = None
    for name, was in records:
        lines = differences(was, now)
        if best is None or len(lines) < len(best[1]):
            best = name, lines
    return best


def _of_code(was: Any, now: Any) -> list[str]:
    if was == now:
        return []
    if not isinstance(was, dict) or not isinstance(now, dict):
        return [f"code: was {_shown(was)}, is {_shown(now)}"]
    lines = [
        f"code: {name} was {_given(was, name)}, is {_given(now, name)}"
        for name in ("version", "python")
        if was.get(name) != now.get(name)
    ]
    before, after = was.get("modules"), now.get("modules")
    if before is None or after is None:
        return lines
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            lines.append(f"code: module {name} is no part of it any more")
        elif name not in before:
            lines.append(f"code: module {name} is a part of it now")
        elif before[name] != after[name]:
            lines.append(f"code: module {name} has changed")
    return lines


def _of_arguments(was: Any, now: Any) -> list[str]:
    if canonical(was) == canonical(now):
        return []
    lines: list[str] = []
    if _is_call(was) and _is_call(now):
        lines += _of_list("arguments: argument", was[0], now[0])
        was, now = was[1], now[1]
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted(was.keys() | now.keys()):
            if name not in was or name not in now or canonical(was[name]) != canonical(now[name]):
                lines.append(f"arguments: {name} was {_given(was, name)}, is {_given(now, name)}")
        return lines
    return [f"arguments: were {_shown(was)}, are {_shown(now)}"]


def _is_call(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], list) and isinstance(value[1], dict)


def _of_list(what: str, was: Sequence[Any], now: Sequence[Any]) -> list[str]:
    before, after = dict(enumerate(was)), dict(enumerate(now))
    return [
        f"{what} {place + 1} was {_given(before, place)}, is {_given(after, place)}"
        for place in range(max(len(was), len(now)))
        if place not in before or place not in after or canonical(before[place]) != canonical(after[place])
    ]


def _of_inputs(was: Iterable[Sequence[Any]], now: Iterable[Sequence[Any]]) -> list[str]:
    before, after = {each[0]: list(each[1:]) for each in was}, {each[0]: list(each[1:]) for each in now}
    lines = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one == other:
            continue
        if one is None or other is None:
            lines.append(f"inputs: {path} is {'new' if one is None else 'not among them any more'}")
        elif "absent" in (one[0], other[0]):
            lines.append(f"inputs: {path} {'exists now' if one[0] == 'absent' else 'does not exist any more'}")
        elif one[1] != other[1]:
            lines.append(f"inputs: {path} has other content")
        else:
            lines.append(f"inputs: {path} was {one[0]}, is {other[0]}")
    return lines


def _of_names(what: str, was: Iterable[str], now: Iterable[str]) -> list[str]:
    before, after = set(was), set(now)
    lines = [f"{what}: {name} is new" for name in sorted(after - before)]
    return lines + [f"{what}: {name} is not among them any more" for name in sorted(before - after)]


def _of_values(what: str, was: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    lines = []
    for name in sorted(was.keys() | now.keys()):
        if name not in was:
            lines.append(f"{what}: {name} is a part of it now")
        elif name not in now:
            lines.append(f"{what}: {name} is no part of it any more")
        elif was[name] != now[name]:
            state = "is not set" if now[name] is None else "was not set, and is" if was[name] is None else "has changed"
            lines.append(f"{what}: {name} {state}")
    return lines


def _given(values: Mapping[Any, Any], name: Any) -> str:
    return _shown(values[name]) if name in values else "not given"


def _shown(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 80 else text[:77] + "…"
