"""The table of options and all that is made of it: one place says what an option is, and nobody else disagrees."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any, get_type_hints

import msgspec
import pytest

from covey import settings as config
from covey.core import options
from covey.core.model import KINDS, Spec
from covey.core.options import COLUMNS, COPIED, FIELDS, KEPT, NAMES, OPTIONS, defaults, job_options, row
from covey.core.view import JobView
from covey.errors import InvalidInput
from covey.settings import SETTINGS
from covey.store import statements
from covey.store.job_rows import NAMES as BOUND
from covey.store.job_rows import job_row, root

BESIDE = {"task", "kind", "args", "joins", "created_by", "cache"}  # of a Spec: no options, or with a form of their own
SAID: dict[str, Any] = {
    "queue": "q",
    "priority": 3,
    "key": "k",
    "unique_key": "u",
    "max_attempts": 7,
    "timeout_s": 8.0,
    "backoff_base": 1.5,
    "backoff_cap_s": 6.0,
    "jitter": True,
    "cwd": "/tmp",
    "batch": "b",
    "labels": {"a": "ä"},
    "keep_background": True,
    "on_error": "collect",
    "child_mode": "serial",
    "tree_timeout_s": 9.0,
}
STORED = SAID | {"jitter": 1, "keep_background": 1, "labels": '{"a":"ä"}'}


def test_an_option_has_its_names_alone() -> None:
    names = [name for option in OPTIONS for name in option.names]
    flags = [flag for option in OPTIONS for flag in option.flags]
    assert len(set(names)) == len(names)
    assert len(set(flags)) == len(flags)
    assert all(set(option.verbs.split()) <= {"enqueue", "run", "spawn", "after"} for option in OPTIONS)
    assert all(option.flags for option in OPTIONS if option.verbs)
    assert all(not option.setting or option.setting in SETTINGS for option in OPTIONS)


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as a type checker sees it."""
    monkeypatch.setattr("typing.TYPE_CHECKING", True)
    found = importlib.util.spec_from_file_location("covey.core.options_as_typed", options.__file__)
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, made)
    found.loader.exec_module(made)
    return made


def test_what_python_types_and_what_a_spec_holds_are_the_options_of_the_table(types: ModuleType) -> None:
    def of(*levels: str) -> set[str]:
        return {name for name, option in NAMES.items() if option.of in levels and name != "id"}

    def typed(name: str) -> set[str]:
        return {*get_type_hints(getattr(types, name))}

    assert typed("TaskOptions") == of("task")
    assert typed("JobOptions") == of("task", "job")
    assert typed("CommandOptions") == of("task", "job", "command")
    assert typed("SpawnedCommandOptions") == of("task", "job", "command") - {"mode"}
    assert {*Spec.__struct_fields__} - BESIDE == {*FIELDS}
    assert {option.name for option in KEPT} >= {name for name in JobView.__struct_fields__ if name in NAMES} - {
        *("id", "args", "max_retries", "run_at")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_what_was_said_and_the_defaults_of_the_rest(kind: Any) -> None:
    configured = config.effective({"max_attempts": "9", "job_timeout_seconds": "12", "backoff_jitter": "true"}, {})
    known = defaults(configured)
    assert tuple(STORED) == COLUMNS
    assert row(Spec(task="t", kind=kind, **SAID), *known[kind]) == tuple(STORED.values())
    nothing = dict(zip(COLUMNS, row(Spec(task="t", kind=kind), *known[kind]), strict=True))
    assert nothing == dict.fromkeys(COLUMNS) | {
        "queue": "default",
        "priority": 0,
        "max_attempts": 9,
        "timeout_s": 12.0 if kind == "command" else None,
        "backoff_base": 2.0,
        "backoff_cap_s": 300.0,
        "jitter": 1,
        "keep_background": 0,
        "on_error": "wait",
    }
    never = dict(zip(COLUMNS, row(Spec(task="t", kind=kind, timeout_s="never"), *known[kind]), strict=True))
    assert never == nothing | {"timeout_s": None}


def test_a_row_is_bound_in_the_order_in_which_its_statement_names_the_parameters() -> None:
    for dialect in ("sqlite", "postgres"):
        text = statements.load(dialect)["insert_job"]
        named = statements.re.findall(r":(\w+)", text)
        assert tuple(dict.fromkeys(named)) == BOUND
    made = dict(
        zip(BOUND, job_row(Spec(task="t", **SAID), root(5), 7, defaults(config.effective({}, {}))), strict=True)
    )
    assert {column: made[column] for column in STORED} == STORED
    assert (made["id"], made["seq"], made["now"], made["task"], made["kind"]) == (5, 5, 7, "t", "sync")
    assert made["tree_deadline_at"] == 7 + 9_000_000


def test_a_copy_has_all_but_what_names_this_one_job() -> None:
    assert {*COLUMNS} - {*COPIED} == {"key", "unique_key"}


def test_what_must_be_looked_up_first_is_asked_for() -> None:
    plain = {name: value for name, value in SAID.items() if name not in ("key", "unique_key")}
    assert not options.asks(Spec(task="t", **plain))
    for name, value in {"key": "k", "unique_key": "u", "run_at": 1, "delay_s": 1.0}.items():
        assert options.asks(Spec(task="t", **{name: value}))  # type: ignore[arg-type]


def test_an_option_that_is_nothing_is_not_said() -> None:
    assert job_options({"queue": None, "timeout": 3, "max_retries": 2}) == {"timeout_s": 3, "max_attempts": 2}
    with pytest.raises(InvalidInput, match="max_attempts and max_retries are the same thing"):
        job_options({"max_attempts": 1, "max_retries": 2})


def test_a_spec_travels_as_it_is() -> None:
    for spec in (Spec(task="t"), Spec(task="t", timeout_s="never"), Spec(task="t", **SAID)):
        for codec in (msgspec.json, msgspec.msgpack):
            assert codec.decode(codec.encode(spec), type=Spec) == spec
    assert msgspec.json.encode(Spec(task="t")) == b'{"task":"t"}'
