"""What a command line can carry and a database cannot: bytes that are no text, numbers without end, no stdin."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import CommandLine

FF = b"\xff"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show", FF], 1),
        (["cancel", FF], 1),
        (["dlq", "retry", FF], 1),
        (["wait", FF], 125),
        (["list", "--task", FF], 2),
        (["list", "--batch", FF], 2),
        (["list", "--queue", FF], 2),
        (["dlq", "list", "--queue", FF], 2),
        (["dlq", "purge", "--queue", FF, "--yes"], 2),
        (["token", "revoke", FF], 2),
        (["worker", "start", "--name", b"a\nb\xff", "--drain"], 2),
        (["worker", "start", "--name", b"a\nb", "--drain"], 2),
        (["worker", "start", "--executor", "docker", "--name", FF], 2),
        (["list", "--before", "99999999999999999999"], 2),
        (["list", "--before", "-99999999999999999999"], 2),
        (["dlq", "list", "--before", "99999999999999999999"], 2),
        (["db", "prune", "--older-than", "9999999999999d"], 2),
        (["db", "prune", "--older-than", "9" * 400], 2),
        (["enqueue", '{"task":"t","args":[%s]}' % ("1" * 4301)], 2),
        (["run", '{"command":"true","delay":0}'], 125),
        (["run", '{"command":"true","run_at":"2031-01-01T00:00:00Z"}'], 125),
    ],
)
def test_odd_input_is_one_line_and_changes_nothing(covey: CommandLine, words: list[str | bytes], code: int) -> None:
    covey("enqueue", "true")
    done = covey(*words)
    assert (done.code, done.out) == (code, ""), done
    assert len(done.err.splitlines()) == 1, done
    assert done.err.startswith("error: ")
    assert "unexpected" not in done.err
    assert covey.count() == 1


@pytest.mark.parametrize("option", ["--queue", "--task", "--batch"])
def test_a_filter_that_no_job_can_match_is_named(covey: CommandLine, option: str) -> None:
    covey("enqueue", "true")
    assert covey("list", option, FF).err.startswith(f"error: {option} ")


def test_a_past_before_every_calendar_breaks_no_page(covey: CommandLine) -> None:
    covey("enqueue", "--delay", "1h", "true")
    assert covey("edit", "1", "--run-at", "0001-01-01T00:00:00+14:00").out == "1 pending\n"
    assert covey("list").code == 0


@pytest.mark.parametrize(
    ("words", "said"), [(["enqueue", "-"], ""), (["dlq", "purge", "--all"], "no dead letters\n")], ids=["file", "dlq"]
)
def test_a_closed_stdin_is_an_empty_one(covey: CommandLine, words: list[str], said: str) -> None:
    covey("enqueue", "true")
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "covey", *words]
    done = subprocess.run(
        closed, capture_output=True, cwd=covey.directory, env=covey.environment(None), timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.decode()) == (0, b"", said)
    assert covey.count() == 1


def test_a_closed_stdin_cannot_say_yes(covey: CommandLine) -> None:
    from tests.kit import HandPool, command

    covey("enqueue", "true")
    with covey.engine() as engine:
        pool = HandPool(engine)
        pool.succeed(pool.claim_one())
        engine.enqueue([command(max_attempts=1)])
        pool.fail(pool.claim_one())
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "covey", "dlq", "purge", "--all"]
    done = subprocess.run(
        closed, capture_output=True, cwd=covey.directory, env=covey.environment(None), timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"say --yes to do it" in done.stderr
