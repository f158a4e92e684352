"""From what a caller asked for to what is stored."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from covey import InvalidInput
from covey import settings as config
from covey.core.model import Policy
from covey.core.specs import shell_spec, task_spec

SETTINGS = config.effective({}, {})
OTHERS = config.effective(
    {
        "max_attempts": "9",
        "backoff_base": "3",
        "max_backoff_seconds": "60",
        "backoff_jitter": "true",
        "job_timeout_seconds": "5",
    },
    {},
)


def test_a_line_and_a_list_of_words() -> None:
    line, words = shell_spec("echo  'a b'", settings=SETTINGS), shell_spec(["echo", "a b", ""], settings=SETTINGS)
    assert (line.task, line.kind, json.loads(line.args or "")) == ("shell", "command", {"command": "echo  'a b'"})
    assert json.loads(words.args or "") == {"argv": ["echo", "a b", ""]}


def test_the_environment_travels_with_the_command() -> None:
    spec = shell_spec("env", settings=SETTINGS, env={"A": "1", "EMPTY": ""})
    assert json.loads(spec.args or "") == {"command": "env", "env": {"A": "1", "EMPTY": ""}}
    assert json.loads(shell_spec("env", settings=SETTINGS, env={}).args or "") == {"command": "env"}


def test_the_policy_comes_from_the_settings() -> None:
    assert shell_spec("true", settings=OTHERS).policy == Policy(9, 5.0, 3.0, 60.0, True)
    assert task_spec("a.b", settings=OTHERS).policy == Policy(9, None, 3.0, 60.0, True)
    assert shell_spec("true", settings=SETTINGS).policy == Policy(3, 3600.0, 2.0, 300.0, False)


def test_what_is_asked_for_wins_over_the_settings() -> None:
    spec = shell_spec(
        "true", settings=OTHERS, max_attempts=1, timeout_s=7, backoff_base=1, backoff_cap_s=0, jitter=False
    )
    assert spec.policy == Policy(1, 7, 1, 0, False)
    assert shell_spec("true", settings=OTHERS, timeout_s=math.inf).policy.timeout_s is None
    never = config.effective({"job_timeout_seconds": "never"}, {})
    assert shell_spec("true", settings=never).policy.timeout_s is None


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("", {}, "empty"),
        (" \t\n", {}, "empty"),
        ([], {}, "empty"),
        (["", "a"], {}, "empty"),
        ("a\x00b", {}, "NUL"),
        (["a", "b\x00"], {}, r"command\[1\]: holds a NUL"),
        (["a", 5], {}, r"command\[1\]: a int was given"),
        (b"true", {}, "a string or a list"),
        (None, {}, "a string or a list"),
        ("\ud800", {}, "lone surrogate"),
        ("true", {"env": {"A=B": "1"}}, "environment name 'A=B'"),
        ("true", {"env": {"": "1"}}, "environment name ''"),
        ("true", {"env": {"A\x00": "1"}}, "environment name"),
        ("true", {"env": {"A": "x\x00"}}, "variable 'A': the value holds a NUL"),
        ("true", {"env": {"A": 1}}, "variable 'A': the value is a int"),
        ("true", {"cwd": "/tmp\x00"}, "cwd: holds a NUL"),
        ("true", {"run_at": 5, "delay_s": 5}, "give one of them"),
        ("true", {"run_at": 1 << 62}, "after the year 9999"),
        ("true", {"if_exists": "maybe"}, "'error' or 'return'"),
        ("true", {"labels": {"a": None}}, "label 'a'"),
        ("true", {"labels": ["a"]}, "pass a dict"),
        ("true", {"timeout_s": "5"}, "number of seconds"),
    ],
)
def test_a_wrong_command_is_refused(command: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        shell_spec(command, settings=SETTINGS, **given)


def test_a_refused_environment_value_is_not_shown() -> None:
    with pytest.raises(InvalidInput) as refused:
        shell_spec("true", settings=SETTINGS, env={"TOKEN": "secret\x00"})
    assert "secret" not in str(refused.value)


def test_the_built_in_task_is_not_a_python_task() -> None:
    with pytest.raises(InvalidInput, match="built-in"):
        task_spec("shell", settings=SETTINGS)
