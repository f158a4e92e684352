"""Worker types, and the places that each of them offers."""

from __future__ import annotations

import pytest

from covey.cli.worker_options import size_of, types_of
from covey.errors import InvalidInput
from covey.pool.turn_loop import Offer
from covey.pool.worker_types import plain, typed
from covey.system.resources import automatic


def test_a_pool_without_types_has_one_that_serves_all_it_serves() -> None:
    types = plain(4, None)
    (only,) = types
    assert (only.name, only.queues, only.count) == ("", None, 4)
    assert (types.queues, types.count) == (None, 4)
    assert types.of("anything") == types.serving(None) == ""
    assert only.title("sync") == "sync"


def test_a_pool_that_serves_some_queues_without_types_still_has_one() -> None:
    types = plain(4, ("mail", "shell"))
    assert types.queues == ("mail", "shell")
    assert types.of("mail") == types.of("shell") == types.serving(("mail", "shell")) == ""


def test_each_named_queue_is_a_type_of_its_own() -> None:
    types = typed({"notebook": 3, "shell": 2})
    assert [(type.name, type.queues, type.count) for type in types] == [
        ("notebook", ("notebook",), 3),
        ("shell", ("shell",), 2),
    ]
    assert (types.queues, types.count) == (("notebook", "shell"), 5)
    assert [types.of(queue) for queue in ("notebook", "shell")] == ["notebook", "shell"]
    assert types.serving(("shell",)) == "shell"
    assert types["shell"].title("async") == "shell (async)"


def test_a_single_type_keeps_its_name() -> None:
    types = typed({"shell": 2, "mail": 0})
    assert [type.name for type in types] == ["shell"]
    assert (types.queues, types.of("shell"), types.serving(("shell",))) == (("shell",), "shell", "shell")


def test_types_are_read_from_the_command_line() -> None:
    assert types_of([]) == {}
    assert types_of(["notebook=3", "shell=0"]) == {"notebook": 3, "shell": 0}
    assert types_of(["a=auto", "b=auto", "c=4"]) == {"a": automatic(2), "b": automatic(2), "c": 4}


@pytest.mark.parametrize(
    "given",
    [
        ["shell"],
        ["shell="],
        ["=1"],
        ["shell=-1"],
        ["shell=+1"],
        ["shell=1.5"],
        ["shell=²"],
        ["shell=AUTO"],
        ["a b=1"],
        ["shell=1001"],
        ["a=501", "b=500"],
        ["shell=1", "shell=1"],
        ["shell=0"],
    ],
)
def test_types_that_make_no_sense_are_refused(given: list[str]) -> None:
    with pytest.raises(InvalidInput):
        types_of(given)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500M", 500 << 20),
        ("500MB", 500 << 20),
        ("500MiB", 500 << 20),
        ("2g", 2 << 30),
        ("2048K", 2 << 20),
        ("1048576", 1 << 20),
        (" 1M ", 1 << 20),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert size_of("--max-memory", text) == size


@pytest.mark.parametrize("text", ["", "M", "0", "1", "1048575", "1023K", "-1M", "1.5G", "1T", "much", "1 M M"])
def test_sizes_that_are_none_or_too_small_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="at least 1M"):
        size_of("--max-memory", text)


def test_a_type_offers_its_own_count_whoever_else_is_busy() -> None:
    offer = Offer({"command": 2, "sync": 2, "async": 1}, 2, {"command": 1, "sync": 1}, 50)
    idle = offer.room(("shell",), {})
    assert (idle.queues, idle.places, idle.bound) == (("shell",), {"command": 2, "sync": 2, "async": 50}, 2)
    full = offer.room(("shell",), {"command": 1, "sync": 1})
    assert (full.places, full.bound) == ({"command": 0, "sync": 0, "async": 50}, 0)
