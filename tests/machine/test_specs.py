"""Everything that a caller says is in the spec, and what is wrong is named as the caller named it."""

from __future__ import annotations

from typing import Any

import pytest

from covey import settings as config
from covey.core.model import Policy, Spec
from covey.core.specs import LATEST, shell_spec, task_spec
from covey.errors import InvalidInput

SETTINGS = config.effective({}, {})
COMMON: dict[str, Any] = {
    "queue": "q",
    "priority": 3,
    "key": "k",
    "if_exists": "return",
    "unique_key": "u",
    "delay_s": 1.5,
    "batch": "b",
    "labels": {"a": "b"},
    "on_error": "collect",
    "child_mode": "serial",
    "tree_timeout_s": 9.0,
    "created_by": "me",
}
POLICY: dict[str, Any] = {
    "max_attempts": 7,
    "timeout_s": 8.0,
    "backoff_base": 1.5,
    "backoff_cap_s": 6.0,
    "jitter": True,
}


def test_a_command_has_all_that_was_said() -> None:
    own = {"cwd": "/tmp", "keep_background": True}
    made = shell_spec("true", settings=SETTINGS, **COMMON, **POLICY, **own)
    assert made == Spec(
        task="shell", kind="command", args='{"command":"true"}', policy=Policy(**POLICY), **COMMON, **own
    )
    assert shell_spec("true", settings=SETTINGS, run_at=LATEST).run_at == LATEST


def test_a_task_has_all_that_was_said() -> None:
    own = {"kind": "async", "args": "[1]", "joins": True}
    made = task_spec("t", settings=SETTINGS, **COMMON, **POLICY, **own)  # type: ignore[arg-type]
    assert made == Spec(task="t", policy=Policy(**POLICY), **COMMON, **own)  # type: ignore[arg-type]
    assert task_spec("t", settings=SETTINGS) == Spec(task="t", policy=made.policy.__class__(3, None, 2.0, 300.0, False))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"queue": 3}, "queue: a int was given"),
        ({"key": 3}, "key: a int was given"),
        ({"unique_key": 3}, "unique_key: a int was given"),
        ({"batch": 3}, "batch: a int was given"),
        ({"labels": {3: "a"}}, "label: a int was given"),
        ({"delay_s": "1"}, "delay '1': a number of seconds"),
        ({"delay_s": True}, "delay True: a number of seconds"),
        ({"tree_timeout_s": "1"}, "tree_timeout '1': a number of seconds"),
        ({"timeout_s": "1"}, "timeout '1': a number of seconds"),
        ({"backoff_base": "1"}, "backoff_base '1': a number"),
        ({"backoff_cap_s": "1"}, "max_backoff '1': a number of seconds"),
        ({"jitter": 1}, "jitter 1: true or false"),
        ({"if_exists": "x"}, "if_exists 'x': 'error' or 'return'"),
        ({"run_at": LATEST + 1}, "run_at is after the year 9999"),
        ({"run_at": 1, "delay_s": 1}, "run_at and delay both say when"),
    ],
)
def test_what_is_wrong_has_the_name_that_the_caller_used(given: dict[str, Any], says: str) -> None:
    for make in (
        lambda: shell_spec("true", settings=SETTINGS, **given),
        lambda: task_spec("t", settings=SETTINGS, **given),
    ):
        with pytest.raises(InvalidInput) as refused:
            make()
        assert str(refused.value).startswith(says)
    assert not str(refused.value).startswith("backoff_base '1': a number of seconds")


def test_names_of_a_commands_own_fields() -> None:
    for command, given, says in (
        ("true", {"cwd": 3}, "cwd: a int"),
        ("a\x00", {}, "command: holds a NUL"),
        ([3], {}, "command[0]: a int"),
        ("\ud800", {}, "command['command']: a lone surrogate"),
    ):
        with pytest.raises(InvalidInput) as refused:
            shell_spec(command, settings=SETTINGS, **given)  # type: ignore[arg-type]
        assert str(refused.value).startswith(says)
    with pytest.raises(InvalidInput, match="task: a int was given"):
        task_spec(3, settings=SETTINGS)  # type: ignore[arg-type]
