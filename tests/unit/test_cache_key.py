"""When two runs are the same run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from covey.core import cache_key
from covey.core.cache_key import Parts, call_of, differences, key_of, nearest, read

GOLDEN = Path(__file__).with_name("cache_keys.json")

FULL = Parts(
    "shop.score",
    {"python": "3.11", "modules": {"shop": "a" * 64, "shop.rules": "b" * 64}},
    [["text", 3], {"exact": True}],
    [["slides/a.puml", "file", "c" * 64], ["slides/*.puml", "pattern", None]],
    ["build/a.svg"],
    {"LANG": None, "TZ": "d" * 64},
    {"/usr/share/plantuml.jar": "e" * 64},
)

texts = some.text(max_size=6)
values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
parts = some.builds(
    Parts,
    task=texts,
    code=values,
    arguments=values,
    inputs=some.lists(
        some.tuples(texts, some.sampled_from(["file", "exec", "absent"]), some.none() | texts), max_size=3
    ),
    outputs=some.lists(texts, max_size=3),
    env=some.dictionaries(texts, some.none() | texts, max_size=3),
    tools=some.dictionaries(texts, texts, max_size=3),
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = list(value.items())
        random.shuffle(pairs)
        return {name: shuffled(each) for name, each in pairs}
    return [shuffled(each) for each in value] if isinstance(value, list) else value


def test_keys_are_the_ones_that_older_versions_have_made() -> None:
    """Another way to write a part would disown every record without saying so: it needs another VERSION."""
    seen = {
        "full": key_of(FULL.text(), "default"),
        "salted": key_of(FULL.text(), "default", "a salt"),
        "elsewhere": key_of(FULL.text(), "slow"),
        "least": key_of(Parts("t").text(), "default"),
        "command": key_of(Parts("shell", None, call_of("shell", '{"argv": ["ls", "ü"]}')[0]).text(), "default"),
    }
    assert {"version": cache_key.VERSION, "keys": seen} == json.loads(GOLDEN.read_text())


@given(parts, parts)
def test_different_parts_have_different_keys_and_equal_ones_the_same(one: Parts, other: Parts) -> None:
    same = [one.task, one.code, one.arguments] == [other.task, other.code, other.arguments]
    if one.text() == other.text():
        assert same or cache_key.canonical(one.arguments) == cache_key.canonical(other.arguments)
        assert not differences(one, other)
    else:
        assert key_of(one.text(), "q") != key_of(other.text(), "q")


@given(texts, texts, texts, texts)
def test_where_a_part_ends_is_part_of_the_key(queue: str, salt: str, other_queue: str, other_salt: str) -> None:
    same = (queue, salt) == (other_queue, other_salt)
    assert (key_of(FULL.text(), queue, salt) == key_of(FULL.text(), other_queue, other_salt)) == same


def test_lists_that_join_to_the_same_text_are_different() -> None:
    assert Parts("t", outputs=["ab", "c"]).text() != Parts("t", outputs=["a", "bc"]).text()


def test_no_order_of_dicts_files_or_names_changes_a_key() -> None:
    for _ in range(1000):
        other = Parts(
            FULL.task,
            shuffled(FULL.code),
            shuffled(FULL.arguments),
            random.sample(list(FULL.inputs), len(FULL.inputs)),
            random.sample(list(FULL.outputs), len(FULL.outputs)),
            shuffled(FULL.env),
            shuffled(FULL.tools),
        )
        assert other.text() == FULL.text()


@pytest.mark.parametrize("seed", ["1", "2"])
def test_a_hash_seed_changes_no_key(seed: str) -> None:
    program = (
        "from covey.core.cache_key import Parts, key_of\n"
        "print(key_of(Parts('t', {n: n for n in {'a', 'b', 'c'}}, [[], {n: 1 for n in {'x', 'y', 'z'}}]).text(), 'q'))"
    )
    env = {"PYTHONHASHSEED": seed, "PATH": os.environ["PATH"]}
    told = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    expected = Parts("t", dict.fromkeys("abc", "") | {n: n for n in "abc"}, [[], dict.fromkeys("xyz", 1)])
    assert told.strip() == key_of(expected.text(), "q")


def test_1_and_1_0_and_true_and_the_text_are_four_arguments() -> None:
    assert len({Parts("t", arguments=[[value], {}]).text() for value in (1, 1.0, True, "1")}) == 4


def test_each_part_of_its_own_changes_the_key() -> None:
    """A key without one of its parts would answer with what another call has made."""
    others = [
        Parts("t", *(FULL.text() if name == left else None for name in ("code", "arguments")))
        for left in ("code", "arguments")
    ]
    others += [
        Parts("t", inputs=[("a", "file", "1")]),
        Parts("t", outputs=["a"]),
        Parts("t", env={"A": None}),
        Parts("t", tools={"a": "1"}),
        Parts("u"),
        Parts("t"),
    ]
    assert len({key_of(each.text(), "q") for each in others}) == len(others)


def test_unset_and_empty_and_not_named_are_three_environments() -> None:
    envs: list[dict[str, str | None]] = [{}, {"A": None}, {"A": ""}, {"A": "x"}]
    assert len({Parts("t", env=cache_key.env_part(env)).text() for env in envs}) == 4


def test_values_of_the_environment_are_in_no_part() -> None:
    arguments, env = call_of("shell", json.dumps({"argv": ["run"], "env": {"TOKEN": "very secret"}}))
    assert "secret" not in Parts("shell", arguments=arguments, env=env).text()
    assert env.keys() == {"TOKEN"}
    assert call_of("shell", json.dumps({"argv": ["run"], "env": {"TOKEN": "other"}}))[1] != env


def test_long_arguments_are_in_the_key_by_their_digest() -> None:
    one, _ = call_of("t", json.dumps([["x" * 5000], {}]))
    other, _ = call_of("t", json.dumps([["x" * 5000 + "y"], {}]))
    assert len(json.dumps(one)) < 200
    assert one != other


def test_parts_are_those_of_a_call_or_not() -> None:
    payload = '{"env": {"A": "1"}, "argv": ["ls"]}'
    arguments, env = call_of("shell", payload)
    told = Parts("shell", None, arguments, env=env)
    assert cache_key.is_call(told, "shell", payload)
    assert not cache_key.is_call(told, "shell", payload.replace("ls", "rm"))
    assert not cache_key.is_call(told, "shell", payload.replace('"1"', '"2"'))
    assert not cache_key.is_call(told, "other", payload)


@pytest.mark.parametrize("text", ["{}", "[]", "[1,2,3,4,5,6,7]", '["t"]', "nonsense"])
def test_what_is_no_list_of_parts_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read(text)


def test_parts_come_back_from_their_text() -> None:
    assert read(FULL.text()).text() == FULL.text()


def changed(**what: Any) -> Parts:
    fields = {name: getattr(FULL, name) for name in cache_key.NAMES}
    return Parts(**(fields | what))


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (changed(task="shop.rank"), "task: was shop.score, is shop.rank"),
        (
            changed(code={"python": "3.11", "modules": {"shop": "a" * 64, "shop.rules": "x"}}),
            "code: module shop.rules has changed",
        ),
        (
            changed(code={"python": "3.11", "modules": {"shop": "a" * 64}}),
            "code: module shop.rules is no part of it any more",
        ),
        (changed(code={"python": "3.12", "modules": FULL.code["modules"]}), 'code: python was "3.11", is "3.12"'),
        (changed(code={"version": "2"}), 'code: version was not given, is "2"'),
        (changed(arguments=[["text", 4], {"exact": True}]), "arguments: argument 2 was 3, is 4"),
        (changed(arguments=[["text", 3], {"exact": False}]), "arguments: exact was true, is false"),
        (changed(arguments=[["text"], {"exact": True}]), "arguments: argument 2 was 3, is not given"),
        (changed(arguments={"sha256": "x", "length": 1}), "arguments: were"),
        (changed(inputs=[["slides/a.puml", "file", "x"], FULL.inputs[1]]), "inputs: slides/a.puml has other content"),
        (
            changed(inputs=[["slides/a.puml", "exec", "c" * 64], FULL.inputs[1]]),
            "inputs: slides/a.puml was file, is exec",
        ),
        (
            changed(inputs=[["slides/a.puml", "absent", None], FULL.inputs[1]]),
            "inputs: slides/a.puml does not exist any more",
        ),
        (changed(inputs=[*FULL.inputs, ["b", "file", "x"]]), "inputs: b is new"),
        (changed(outputs=["build/b.svg"]), "outputs: build/b.svg is new"),
        (changed(env={"LANG": "x", "TZ": "d" * 64}), "env: LANG was not set, and is"),
        (changed(env={"TZ": "d" * 64}), "env: LANG is no part of it any more"),
        (changed(env={"LANG": None, "TZ": None}), "env: TZ is not set"),
        (changed(tools={"/usr/share/plantuml.jar": "x"}), "tools: /usr/share/plantuml.jar has changed"),
    ],
)
def test_what_differs_is_said_in_words(now: Parts, sentence: str) -> None:
    assert any(line.startswith(sentence) for line in differences(FULL, now)), differences(FULL, now)


def test_the_nearest_record_is_the_one_with_the_fewest_differences() -> None:
    far, near = Parts("other"), changed(outputs=[])
    assert nearest(FULL, [("far", far), ("near", near)]) == ("near", ["outputs: build/a.svg is new"])
    assert nearest(FULL, []) is None
