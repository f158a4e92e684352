"""The query language: `state:dead queue:mail task:report.* age:>1h "boom"`, read, and as conditions for the store.

One word narrows by one thing; all of them must hold. What no index answers scans, and is bounded by who asks.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from ..errors import InvalidInput
from .model import ENDED, STATES
from .times import seconds

MOST = 1000  # characters
WORDS = ("state", "queue", "task", "label.NAME", "key", "id", "batch", "tree", "worker", "age", "tries", "error")
# What people of other queues call a state.
STATES_ELSEWHERE = {
    "running": ("processing",),
    "queued": ("pending",),
    "done": ("completed",),
    "success": ("completed",),
    "succeeded": ("completed",),
    "killed": ("cancelled",),
    "stashed": ("blocked",),
    "ended": tuple(sorted(ENDED)),
    "live": tuple(state for state in STATES if state not in ENDED),
}
_TOKEN = re.compile(r'\s*(?:([A-Za-z_]+(?:\.(?:"[^"]*"|[^\s:"]+))?):)?("(?:[^"\\]|\\.)*"|[^\s"]+|)(?=\s|$)')
_COMPARED = re.compile(r"(>=|<=|>|<|=|)(.*)")


class Condition(Struct, frozen=True):
    """The name of a statement's part, and what it is given."""

    name: str
    params: dict[str, Any]
    scans: bool = False  # no index has it: every row that is left must be looked at


class Query(Struct, frozen=True):
    states: tuple[str, ...] = ()  # of any, if there is none
    conditions: tuple[Condition, ...] = ()

    @property
    def scans(self) -> bool:
        return any(condition.scans for condition in self.conditions)

    @property
    def params(self) -> dict[str, Any]:
        return {name: value for condition in self.conditions for name, value in condition.params.items()}


def parse(text: str, now: int) -> Query:
    """What the words ask for; InvalidInput names the word that cannot be, with what was perhaps meant."""
    if len(text) > MOST:
        raise InvalidInput(f"query: {len(text):,} characters, at most {MOST:,}")
    states: tuple[str, ...] = ()
    conditions: dict[str, Condition] = {}
    free: list[str] = []
    for word, value in _tokens(text):
        if word is None:
            free.append(value)
        elif word == "state":
            states = _states(value, states)
        else:
            for condition in _condition(word, value, now):
                if condition.name in conditions:
                    raise InvalidInput(f"query: {word} is said twice; several values are written as {word}:a,b")
                conditions[condition.name] = condition
    if free:
        needle = json.dumps(" ".join(free), ensure_ascii=False)[1:-1]
        conditions["where_text"] = Condition("where_text", {"text": _like(needle)}, scans=True)
    return Query(states, tuple(conditions.values()))


def _tokens(text: str) -> list[tuple[str | None, str]]:
    found: list[tuple[str | None, str]] = []
    place, text = 0, text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.end() == place:
            raise InvalidInput(
                f'query: {text[place : place + 40]!r} is not closed or not apart; write word:"a value" …'
            )
        word, value = match[1], match[2]
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        elif word is None and ":" in value:
            raise InvalidInput(f'query: {value!r} has a colon; a text that has one is quoted: "{value}"')
        if not value.strip():
            raise InvalidInput(f"query: nothing follows {word}:" if word else "query: an empty text")
        found.append((word, value))
        place = match.end()
    return found


def _states(text: str, before: tuple[str, ...]) -> tuple[str, ...]:
    if before:
        raise InvalidInput("query: state is said twice; several values are written as state:dead,failed")
    found: list[str] = []
    for name in _list(text):
        if name in STATES:
            found.append(name)
        elif name in STATES_ELSEWHERE:
            found += STATES_ELSEWHERE[name]
        else:
            raise InvalidInput(f"query: no state {name!r}{_meant(name, STATES)}; states are {', '.join(STATES)}")
    return tuple(dict.fromkeys(found))


def _condition(word: str, value: str, now: int) -> list[Condition]:
    name, dot, label = word.partition(".")
    if dot and name == "label":
        pair = json.dumps({label.strip('"'): value}, ensure_ascii=False, separators=(",", ":"))[1:-1]
        return [Condition("where_label", {"label": pair}, scans=True)]
    match word:
        case "queue":
            return [Condition("where_queues", {"queues": json.dumps(_list(value))})]
        case "task" if value.endswith("*"):
            return [
                Condition("where_task_prefix", {"task_prefix": value[:-1], "task_length": len(value) - 1}, scans=True)
            ]
        case "task":
            return [Condition("where_tasks", {"tasks": json.dumps(_list(value))})]
        case "key":
            return [Condition("where_key", {"key": value})]
        case "batch":
            return [Condition("where_batch", {"batch": value})]
        case "id":
            return [Condition("where_ids", {"ids": json.dumps([_number(word, each) for each in _list(value)])})]
        case "tree":
            return [Condition("where_tree", {"tree": _number(word, value)})]
        case "worker":
            pool, slash, name = value.partition("/")
            held = Condition("where_pool", {"pool": _number(word, pool)})
            return [held, Condition("where_worker", {"worker": name})] if slash else [held]
        case "age":
            return [_age(value, now)]
        case "tries":
            return _tries(value)
        case "error":
            return [Condition("where_error", {"error": _like(value)}, scans=True)]
    known = tuple(each.partition(".")[0] for each in WORDS)
    raise InvalidInput(
        f'query: no word {word!r}{_meant(name, known)}; words are {", ".join(WORDS)}, and "any text" in quotes'
    )


def _age(text: str, now: int) -> Condition:
    sign, rest = _compared(text)
    at = now - int(seconds(rest.strip(), "query: age") * 1e6)
    if sign in (">", ">="):
        return Condition("where_older", {"older": at}, scans=True)
    if sign in ("<", "<="):
        return Condition("where_younger", {"younger": at}, scans=True)
    raise InvalidInput(f"query: age:{text}: write age:>1h (older) or age:<1h (younger)")


def _tries(text: str) -> list[Condition]:
    sign, rest = _compared(text)
    number = _number("tries", rest)
    least = Condition("where_tries_least", {"tries_least": number + (sign == ">")}, scans=True)
    most = Condition("where_tries_most", {"tries_most": number - (sign == "<")}, scans=True)
    return [least] if sign in (">", ">=") else [most] if sign in ("<", "<=") else [least, most]


def _compared(text: str) -> tuple[str, str]:
    match = _COMPARED.fullmatch(text)
    assert match is not None
    return match[1], match[2]


def _number(word: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInput(f"query: {word}:{text}: a whole number is needed")
    return int(text)


def _list(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _like(text: str) -> str:
    """The pattern of what contains the text, however it is written."""
    return "%" + re.sub(r"([%_!])", r"!\1", text.lower()) + "%"


def _meant(word: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word.lower(), known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
