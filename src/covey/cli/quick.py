"""The short way for a plain `covey enqueue`, which scripts call in loops: no typer, no rich.

It understands a subset of what typer does, and means the same by it. Everything else is left to typer.
"""

from __future__ import annotations

from typing import Any

VALUES = {
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
}
NUMBERS = {
    "--priority": "priority",
    "-p": "priority",
    "--max-attempts": "max_attempts",
    "--max-retries": "max_attempts",
}
LISTS = {"--env": "env", "-e": "env", "--label": "label"}
FLAGS = {"--json": "json", "--keep-background": "keep_background"}


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
        elif len(words) > 1 or not _take(word, rest, options):
            return None
        else:
            closed = bool(words)
    return words, None, options


def _take(word: str, rest: list[str], options: dict[str, Any]) -> bool:
    """The option and its value are in ``options``; False if this is nothing for the short way."""
    if word in FLAGS:
        options[FLAGS[word]] = True
        return True
    name, given, value = word.partition("=") if word.startswith("--") else (word, "", "")
    if name not in VALUES and name not in NUMBERS and name not in LISTS:
        return False
    if not given:
        if not rest or rest[0].startswith("-"):
            return False
        value = rest.pop(0)
    if name in LISTS:
        options.setdefault(LISTS[name], []).append(value)
    elif name in NUMBERS:
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            return False
        options[NUMBERS[name]] = int(value)
    else:
        options[VALUES[name]] = value
    return True
