"""Whoever reads what a command prints may go at any time: that is no error, and changes no exit code."""

from __future__ import annotations

import os
import subprocess

import pytest

from covey.engine.engine import Engine
from tests.kit import command

from .conftest import CommandLine

READING = [
    *("status", "status --json", "list", "list --json", "show 1", "show 1 --json", "why 1", "tree 1", "logs 1"),
    *("queue list", "config list", "worker list", "worker events", "dlq list", "token list", "doctor", "db check"),
    *("--help", "status --help", "--version", "enqueue true", "cancel 900"),
]


def unread(covey: CommandLine, *words: str) -> tuple[int, bytes]:
    """(exit code, stderr) of a command whose stdout is closed at the other end before it begins."""
    ours, theirs = os.pipe()
    os.close(ours)
    started = covey.popen(*words, stdout=theirs)
    os.close(theirs)
    _, err = started.communicate(timeout=60)
    return started.returncode, err


@pytest.fixture
def many(engine: Engine) -> Engine:
    """More than a pipe holds."""
    engine.enqueue([command("x" * 300, key=f"job {n}") for n in range(1000)])
    return engine


@pytest.mark.parametrize("line", READING)
def test_a_command_whose_output_nobody_reads_is_silent_and_ends_as_if_it_were_read(
    covey: CommandLine, many: Engine, line: str
) -> None:
    words = line.split()
    code, err = unread(covey, *words)
    if words[0] == "cancel":
        many.retry([900])
    read = covey(*words)
    assert code == read.code
    assert err.decode() in ("", read.err)


@pytest.mark.parametrize(("line", "code"), [("list --limit 1000", 0), ("status", 1), ("list --limit 1000 --json", 0)])
def test_a_reader_that_has_seen_enough_is_no_error(covey: CommandLine, many: Engine, line: str, code: int) -> None:
    started = covey.popen(*line.split())
    assert started.stdout
    assert started.stdout.read(1)
    started.stdout.close()
    assert started.stderr
    assert (started.wait(60), started.stderr.read()) == (code, b"")


def test_an_error_that_nobody_reads_has_its_exit_code(covey: CommandLine) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    started = covey.popen("show", "1", stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    assert started.wait(60) == 1
