"""The short way for a plain `covey enqueue`, which scripts call in loops, and `covey worker start`: no typer, no rich.

It understands a subset of what typer does, and means the same by it. Everything else is left to typer.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Words(NamedTuple):
    """The options that the short way knows, each with the name of its parameter."""

    values: dict[str, str]
    numbers: dict[str, str]
    lists: dict[str, str]
    flags: dict[str, str]


START = Words(
    values={
        "--count": "count",
        "-n": "count",
        "--app": "app",
        "--name": "name",
        "--max-memory": "max_memory",
        "--token-file": "token_file",
        "--db": "db",
    },
    numbers={
        "--grace": "grace",
        "--max-jobs": "max_jobs",
        "--max-startup-concurrency": "max_startup_concurrency",
        "--parent-pid": "parent_pid",
        "--tree": "tree",
    },
    lists={"--worker": "worker", "-w": "worker", "--queue": "queue", "-q": "queue"},
    flags={"--drain": "drain", "--quiet": "quiet", "--no-reuse": "no_reuse"},
)


def _of_enqueue() -> Words:
    from ..core.options import OPTIONS

    words = Words({"--db": "db", "--file": "file", "-f": "file", "--command": "command"}, {}, {}, {"--json": "json"})
    tables = {str: words.values, int: words.numbers, list[str]: words.lists, bool: words.flags}
    for option in OPTIONS:
        if "enqueue" in option.verbs:
            tables[option.form.word].update(dict.fromkeys(option.flags, option.name))
    return words


def understood_start(args: list[str]) -> dict[str, Any] | None:
    """The options of a `worker start`, or None where typer must look."""
    options: dict[str, Any] = {}
    if len(args) > 1 and args[0] == "--db":
        options["db"], args = args[1], args[2:]
    if args[:2] != ["worker", "start"]:
        return None
    rest = args[2:]
    while rest:
        if not _take(rest.pop(0), rest, options, START):
            return None
    return options


def understood(args: list[str]) -> tuple[list[str], list[str] | None, dict[str, Any]] | None:
    """(words, words after --, options) of an `enqueue`, or None where typer must look."""
    options: dict[str, Any] = {}
    if len(args) > 1 and args[0] == "--db":
        options["db"], args = args[1], args[2:]
    if not args or args[0] != "enqueue":
        return None
    known = _of_enqueue()
    from .job_input import is_whole

    words: list[str] = []
    rest = args[1:]
    while rest:
        word = rest.pop(0)
        if word == "--":
            return words, rest, options
        if word == "-" or not word.startswith("-"):
            if not words and not is_whole(word):
                return [word, *rest], None, options  # all of it is the command's
            words.append(word)
        elif not _take(word, rest, options, known):
            return None
    return words, None, options


def _take(word: str, rest: list[str], options: dict[str, Any], known: Words) -> bool:
    """The option and its value are in ``options``; False if this is nothing for the short way."""
    if word in known.flags:
        options[known.flags[word]] = True
        return True
    name, given, value = word.partition("=") if word.startswith("--") else (word, "", "")
    if name not in known.values and name not in known.numbers and name not in known.lists:
        return False
    if not given:
        if not rest or rest[0].startswith("-"):
            return False
        value = rest.pop(0)
    if name == "--db" and not value:
        return False  # names none: one before the verb still holds
    if name in known.lists:
        options.setdefault(known.lists[name], []).append(value)
    elif name in known.numbers:
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            return False
        options[known.numbers[name]] = int(value)
    else:
        options[known.values[name]] = value
    return True
