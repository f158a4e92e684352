"""Jobs as JSON objects: what each field becomes, and the one line that says what is wrong with it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from covey import settings as config
from covey.core import objects
from covey.core.model import Spec
from covey.core.times import moment, seconds
from covey.errors import InvalidInput

SETTINGS = config.effective({}, {})


def spec(defaults: dict[str, Any] | None = None, **fields: Any) -> Spec:
    return objects.spec_of(fields, settings=SETTINGS, defaults=defaults or {})


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"id": "a"}, "key", "a"),
        ({"key": "a"}, "key", "a"),
        ({"id": "a", "key": "a"}, "key", "a"),
        ({"id": 7}, "key", "7"),
        ({"queue": "q"}, "queue", "q"),
        ({"priority": 3}, "priority", 3),
        ({"cwd": "/tmp"}, "cwd", "/tmp"),
        ({"batch": "b"}, "batch", "b"),
        ({"if_exists": "return"}, "if_exists", "return"),
        ({"keep_background": True}, "keep_background", True),
        ({"unique_key": "u"}, "unique_key", "u"),
        ({"on_error": "collect"}, "on_error", "collect"),
        ({"mode": "serial"}, "child_mode", "serial"),
        ({"tree_timeout": "1h"}, "tree_timeout_s", 3600.0),
        ({"delay": 1.5}, "delay_s", 1.5),
        ({"delay": "2m"}, "delay_s", 120.0),
        ({"run_at": "1970-01-01T00:00:01Z"}, "run_at", 1_000_000),
        ({"labels": {"a": "b"}}, "labels", {"a": "b"}),
        ({"labels": None}, "labels", None),
    ],
)
def test_a_field_is_said_in_the_spec(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(spec(command="true", **given), field) == value


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"max_attempts": 5}, "max_attempts", 5),
        ({"max_retries": 5}, "max_attempts", 5),
        ({"max_attempts": 5, "max_retries": 5}, "max_attempts", 5),
        ({"timeout": 2}, "timeout_s", 2),
        ({"timeout": "90s"}, "timeout_s", 90.0),
        ({"timeout": None}, "timeout_s", None),
        ({"timeout": " Never "}, "timeout_s", None),
        ({"timeout": "none"}, "timeout_s", None),
        ({"timeout": "off"}, "timeout_s", None),
        ({}, "timeout_s", SETTINGS["job_timeout_seconds"]),
        ({}, "max_attempts", SETTINGS["max_attempts"]),
    ],
)
def test_a_field_of_the_policy_is_said_in_the_spec(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(spec(command="true", **given).policy, field) == value


@pytest.mark.parametrize("name", [name for name in objects.FIELDS if name not in ("command", "timeout")])
def test_null_is_as_if_the_field_were_not_there(name: str) -> None:
    defaults = {"queue": "q", "key": "k", "max_attempts": 9, "delay_s": 4.0, "labels": {"a": "b"}}
    assert spec(defaults, command="true", **{name: None}) == spec(defaults, command="true")


def test_what_an_object_leaves_open_comes_from_the_defaults() -> None:
    defaults = {"queue": "q", "env": {"A": "1", "B": "1"}, "labels": {"a": "1", "b": "1"}, "run_at": 5, "delay_s": None}
    made = spec(defaults, command="true", env={"B": "2"}, labels={"b": "2"}, delay=3)
    assert (made.queue, made.labels, made.run_at, made.delay_s) == ("q", {"a": "1", "b": "2"}, None, 3)
    assert json.loads(made.args or "")["env"] == {"A": "1", "B": "2"}
    assert spec({"delay_s": 3.0}, command="true", run_at="1970-01-01T00:00:01Z").delay_s is None


@pytest.mark.parametrize(
    ("given", "args"),
    [
        ({"command": "ls -l"}, {"command": "ls -l"}),
        ({"argv": ["ls", "-l"]}, {"argv": ["ls", "-l"]}),
        ({"task": "t"}, None),
        ({"task": "t", "args": []}, None),
        ({"task": "t", "args": [1, "a"]}, [[1, "a"], {}]),
        ({"task": "t", "args": {"a": 1}}, [[], {"a": 1}]),
    ],
)
def test_a_command_or_a_task_with_its_arguments(given: dict[str, Any], args: Any) -> None:
    made = spec(**given)
    assert (None if made.args is None else json.loads(made.args)) == args
    assert (made.task, made.kind) == (("t", "sync") if "task" in given else ("shell", "command"))


def test_a_task_may_be_async_and_knows_nothing_of_a_commands_defaults() -> None:
    made = spec({"env": {"A": "1"}, "keep_background": True, "cwd": "/"}, task="t", kind="async")
    assert (made.kind, made.cwd, made.keep_background) == ("async", None, False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "one of command, argv and task is needed"),
        ({"command": "a", "task": "t"}, "not command and task"),
        ({"argv": "ls"}, "argv: a list"),
        ({"command": ["ls"]}, "goes into argv"),
        ({"command": "a", "args": [1]}, "args belongs to a task"),
        ({"command": "a", "kind": "sync"}, "kind belongs to a task"),
        ({"task": "t", "env": {"A": "1"}}, "env is for commands; the task 't'"),
        ({"task": "t", "cwd": "/"}, "cwd is for commands"),
        ({"task": "t", "keep_background": True}, "keep_background is for commands"),
        ({"task": "t", "args": "x"}, "args: a list"),
        ({"task": "t", "kind": "command"}, "kind 'command': sync, or async"),
        ({"task": 3}, "task: a int was given"),
        ({"command": "a", "id": "x", "key": "y"}, "two names of one thing"),
        ({"command": "a", "id": 1.5}, "id: a float was given"),
        ({"command": "a", "id": True}, "id: a bool was given"),
        ({"command": "a", "max_attempts": 1, "max_retries": 2}, "two names of one thing"),
        ({"command": "a", "max_attempts": 1, "max_retries": True}, "two names of one thing"),
        ({"command": "a", "max_retries": 0}, "max_retries 0: it counts all runs"),
        ({"command": "a", "max_attempts": "3"}, "max_attempts '3': a whole number"),
        ({"command": "a", "max_attempts": True}, "max_attempts True: a whole number"),
        ({"command": "a", "keep_background": "yes"}, "keep_background 'yes': true or false"),
        ({"command": "a", "env": ["A"]}, "env: an object"),
        ({"command": "a", "labels": 3}, "labels: an object"),
        ({"command": "a", "run_at": 3}, "run_at: a int"),
        ({"command": "a", "run_at": "soon"}, "run_at 'soon': write a time"),
        ({"command": "a", "delay": "soon"}, "delay 'soon': write a duration"),
        ({"command": "a", "delay": True}, "delay True: a number"),
        ({"command": "a", "timeout": "x"}, "timeout 'x'"),
        ({"command": "a", "timeout": [1]}, "timeout [1]"),
        ({"command": "a", "tree_timeout": "x"}, "tree_timeout 'x'"),
        ({"command": "a", "run_at": "2031-01-01T00:00:00Z", "delay": 1}, "both say when"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        spec(**given)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


# ── the text ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_object_is_read_as_it_is() -> None:
    assert objects.fields_of('{"a": 1, "b": {"a": null}}', ["a", "b"]) == {"a": 1, "b": {"a": None}}


def test_every_field_that_can_be_said_is_known() -> None:
    plain = (
        "id key command argv task args kind queue priority run_at delay max_attempts max_retries timeout cwd env batch"
    )
    more = "labels if_exists keep_background unique_key on_error mode tree_timeout"
    assert objects.fields_of(json.dumps(dict.fromkeys(f"{plain} {more}".split())), objects.FIELDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": }', "at character 7"),
        ("[1]", "this is a list"),
        ('{"a": 1, "c": 2}', "unknown field 'c'; known are a, b"),
        ('{"b": 1, "a": 1, "a": 2}', "the field 'a' is there twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_text_that_is_no_such_object_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        objects.fields_of(text, ["a", "b"])


# ── times ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("0", 0.0),
        (" 90 S ", 90.0),
        ("5ms", 0.005),
        ("15m", 900.0),
        ("15min", 900.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1w", 604800.0),
        ("1h30m", 5400.0),
        ("1h 30m 1.5s", 5401.5),
    ],
)
def test_durations_as_people_write_them(text: str, wanted: float) -> None:
    assert math.isclose(seconds(text, "delay"), wanted)


@pytest.mark.parametrize("text", ["", "x", "h", "1x", "1h30", "-1s", "1,5s", "٣", "٣s", "1 2"])
def test_what_is_no_duration(text: str) -> None:
    if text == "1 2":
        assert seconds(text, "delay") == 12  # blanks say nothing
        return
    with pytest.raises(InvalidInput, match="delay"):
        seconds(text, "delay")


def test_moments_have_a_zone() -> None:
    assert moment("1970-01-01T00:00:00Z", "at") == 0
    assert moment(" 1970-01-01T02:00:00.000001+02:00 ", "at") == 1
    assert moment("1969-12-31T23:59:59Z", "at") == -1_000_000
    assert moment("9999-12-31T23:59:59-23:59", "at") > moment(
        "9999-12-31T23:59:59Z", "at"
    )  # no instant is too far away
    for text, says in (("1970-01-01T00:00:00", "has no zone"), ("x", "write a time")):
        with pytest.raises(InvalidInput, match=says):
            moment(text, "at")


@pytest.mark.parametrize(
    ("here", "cwd", "meant"),
    [
        ("/home/ann", ".", "/home/ann"),
        ("/home/ann", "a/../b", "/home/ann/b"),
        ("/home/ann", "..", "/home"),
        ("/home/ann", "/srv/./x", "/srv/./x"),
        ("/home/ann", None, "/home/ann"),
        (None, "a", "a"),
    ],
)
def test_a_relative_directory_is_meant_from_where_the_caller_is(here: str | None, cwd: str | None, meant: str) -> None:
    assert spec({"cwd": here}, command="pwd", cwd=cwd).cwd == meant


@pytest.mark.parametrize("cwd", [7, ["a"], {}])
def test_a_directory_is_a_string(cwd: Any) -> None:
    with pytest.raises(InvalidInput, match=r"cwd: a .* was given; pass a string"):
        spec({"cwd": "/"}, command="pwd", cwd=cwd)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_that_is_too_long_to_be_read_is_said_so(sign: str) -> None:
    assert objects.fields_of('{"args": [%s]}' % ("9" * 4300), ["args"]) == {"args": [10**4300 - 1]}
    with pytest.raises(InvalidInput, match="a number of 4,301 digits; at most 4,300 can be read"):
        objects.fields_of('{"args": [%s]}' % (sign + "9" * 4301), ["args"])
