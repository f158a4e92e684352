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


ENQUEUE = Words(
    values={
        "--queue": "queue",
        "-q": "queue",
        "--key": "key",
        "--if-exists": "if_exists",
        "--run-at": "run_at",
        "--delay": "delay",
        "--timeout": "timeout",
        "--cwd": "cwd",
        "--batch": "batch",
        "--db": "db",
        "--on-error": "on_error",
        "--tree-timeout": "tree_timeout",
        "--file": "file",
        "-f": "file",
    },
    numbers={
        "--priority": "priority",
        "-p": "priority",
        "--max-attempts": "max_attempts",
        "--max-retries": "max_attempts",
    },
    lists={"--env": "env", "-e": "env", "--label": "label"},
    flags={"--json": "json", "--keep-background": "keep_background"},
)
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
    words: list[str] = []
    closed = False  # an option followed the first word: another word would be ambiguous
    rest = args[1:]
    while rest:
        word = rest.pop(0)
        if word == "--":
            return words, rest, options
        if word == "-" or not word.startswith("-"):
            if closed:
                return None
            words.append(word)
        elif len(words) > 1 or not _take(word, rest, options, ENQUEUE):
            return None
        else:
            closed = bool(words)
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
