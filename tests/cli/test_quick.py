"""The short way past typer means what typer means."""

from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import pytest

from covey.cli.commands.worker_start import start
from covey.cli.exit_codes import verb_of
from covey.cli.fast_path import START, understood, understood_start
from covey.cli.worker_options import start_pool

# Containers take their time anyway: these go the long way through typer.
CONTAINED = ("executor", "image", "memory", "cpus", "mount", "server", "port", "detach")


def test_every_option_of_a_start_is_known_to_both_ways_by_the_same_name() -> None:
    hints = get_type_hints(start, include_extras=True)
    declared = {
        option: name
        for name in inspect.signature(start).parameters
        # typer takes the first of them for a default until it has seen that it stands in an annotation
        for option in (get_args(hints[name])[1].default, *get_args(hints[name])[1].param_decls)
    }
    short = START.values | START.numbers | START.lists | START.flags
    assert {option: name for option, name in declared.items() if name not in CONTAINED} == short
    parameters = {name: it for name, it in inspect.signature(start).parameters.items() if name not in CONTAINED}
    assert list(parameters) == list(inspect.signature(start_pool).parameters)
    for name, parameter in parameters.items():
        assert parameter.default == inspect.signature(start_pool).parameters[name].default


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--count 4 --drain", {"count": "4", "drain": True}),
        ("-n auto --quiet --grace 3", {"count": "auto", "quiet": True, "grace": 3}),
        ("--worker a=1 -w b=2 --db q.db", {"worker": ["a=1", "b=2"], "db": "q.db"}),
        ("--app=tasks:app --max-jobs=10", {"app": "tasks:app", "max_jobs": 10}),
    ],
)
def test_a_plain_start_needs_no_typer(words: str, options: dict[str, object]) -> None:
    assert understood_start(["worker", "start", *words.split()]) == options
    assert understood_start(["--db", "x", "worker", "start", *words.split()]) == {"db": "x"} | options


@pytest.mark.parametrize(
    "words", ["--help", "--grace 1.5", "--count", "--count -1", "shell", "--no-such", "-n4", "--db=", "--drain --db="]
)
def test_what_is_not_plain_is_left_to_typer(words: str) -> None:
    assert understood_start(["worker", "start", *words.split()]) is None


@pytest.mark.parametrize("words", [["--db=", "true"], ["--db", "", "true"], ["true x", "--db="]])
def test_a_database_without_a_name_is_left_to_typer(words: list[str]) -> None:
    assert understood(["--db", "x", "enqueue", *words]) is None
    assert understood(["enqueue", *words]) is None


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("run true", "run"),
        ("--db list run true", "run"),
        ("--token-file list wait 1", "wait"),
        ("--token-file t --db d wait 1", "wait"),
        ("--token-file=t wait 1", "wait"),
        ("--version", None),
        ("--token-file", None),
    ],
)
def test_the_verb_is_no_option_s_value(words: str, verb: str | None) -> None:
    assert verb_of(words.split()) == verb
