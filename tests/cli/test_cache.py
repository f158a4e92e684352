"""covey run --cache, covey cache …: as people type it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.running import Yard


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def covey(yard: Yard, *words: str) -> tuple[int, str, str]:
    done = yard.run(*words, timeout_s=60)
    return done.returncode, done.stdout, done.stderr


def test_a_command_that_ran_before_prints_the_same_and_starts_nothing(yard: Yard) -> None:
    with yard:
        line = "echo hello; echo oops >&2; date +%s%N"
        code, out, err = covey(yard, "run", "--cache", line)
        assert (code, out.splitlines()[0], err) == (0, "hello", "oops\n")
        assert covey(yard, "run", "--cache", line) == (0, out, err)
        assert yard.engine.pool_views() == []
        assert yard.engine.job(2).cached_from == 1
        assert covey(yard, "run", line)[1] != out
        assert covey(yard, "run", "--cache", "--no-cache", line)[1] != out
        _, fresh, _ = covey(yard, "run", "--cache", "--refresh", line)
        assert fresh != out
        assert covey(yard, "run", "--cache", line)[1] == fresh
        assert "cached from  job 5; nothing ran" in covey(yard, "show", "6")[1]
        assert "as 5" in covey(yard, "list")[1]
        assert "cached from job 5" in covey(yard, "why", "6")[1]


def test_failures_run_again_and_status_and_explain_tell(yard: Yard) -> None:
    with yard:
        for _ in range(2):
            assert covey(yard, "run", "--cache", "--max-attempts", "1", "exit 3")[0] == 3
        assert covey(yard, "run", "--cache", "-e", "WORD=secret", "echo $WORD")[1] == "secret\n"
        assert covey(yard, "run", "--cache", "-e", "WORD=other", "echo $WORD")[1] == "other\n"
        code, out, _ = covey(yard, "cache", "explain", "4")
        assert (code, "env: WORD has changed" in out) == (0, True)
        assert "secret" not in out + covey(yard, "cache", "explain", "4", "--json")[1]
        assert "0 of 2" in covey(yard, "cache", "status")[1]
        assert covey(yard, "cache", "prune", "--max-size", "0")[1].startswith("2 records removed")


def test_check_finds_what_is_not_deterministic(yard: Yard) -> None:
    with yard:
        covey(yard, "run", "--cache", "echo same")
        covey(yard, "run", "--cache", "date +%s%N")
        yard.pool(commands_only=True).started()
        code, out, err = covey(yard, "cache", "check", "1")
        assert (code, "nothing differs" in out) == (0, True), err
        code, out, err = covey(yard, "cache", "check", "2")
        assert (code, "standard output was" in out, "not deterministic" in err) == (1, True, True)
        assert yard.engine.cache_status().records == 2
        assert covey(yard, "cache", "check", "3")[0] == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--no-cache", "true"], "add --cache"),
        (["--cache", "--no-cache", "--refresh", "true"], "give one of them"),
        (["--cache", "--tool", "dot", "true"], "whole path"),
        (["--cache", "--tool", "/nowhere/at/all", "true"], "no such file"),
    ],
)
def test_flags_that_make_no_sense_are_one_line_and_queue_nothing(yard: Yard, words: list[str], why: str) -> None:
    with yard:
        for verb, expected in (("run", 125), ("enqueue", 2)):
            code, out, err = covey(yard, verb, *words)
            assert (code, out, err.count("\n")) == (expected, "", 1)
            assert why in err
        assert not any(yard.engine.status().counts.values())


def test_a_tool_that_is_replaced_is_another_key(yard: Yard, tmp_path: Path) -> None:
    with yard:
        tool = tmp_path / "tool.sh"
        tool.write_text("echo one\n")
        run: Callable[[], str] = lambda: covey(yard, "run", "--cache", "--tool", str(tool), f"sh {tool}")[1]  # noqa: E731
        assert (run(), run()) == ("one\n", "one\n")
        assert yard.engine.job(2).cached_from == 1
        tool.write_text("echo two\n")
        assert run() == "two\n"
