"""covey schedule …"""

from __future__ import annotations

import pytest

from .conftest import CommandLine

DAILY = ("--cron", "30 2 * * *", "--tz", "Europe/Berlin")


def test_what_is_added_is_told_in_words_and_is_there(covey: CommandLine) -> None:
    added = covey("schedule", "add", "nightly", *DAILY, "--queue", "office", "--timeout", "1h", "--", "echo", "hi")
    assert (added.code, added.err) == (0, "")
    assert added.out.startswith("nightly: at 02:30 every day (Europe/Berlin); next: ")
    view = covey("schedule", "show", "nightly", "--json").json
    assert view["job"] | {"cwd": ""} == {"argv": ["echo", "hi"], "queue": "office", "timeout": "1h", "cwd": ""}
    assert (view["state"], view["ticks"], view["from"]) == ("active", [], None)
    assert [each["name"] for each in covey("schedule", "list", "--json").json] == ["nightly"]
    assert "02:30" in covey("schedule", "list").out
    assert "echo hi" in covey("schedule", "show", "nightly").out
    again = covey("schedule", "add", "nightly", "--every", "5m", "true")
    assert (again.code, again.out) == (1, "")
    assert "covey schedule edit" in again.err


def test_who_may_be_surprised_at_a_clock_change_is_told(covey: CommandLine) -> None:
    added = covey("schedule", "add", "s", "--cron", "0 */2 * * *", "--tz", "Europe/Berlin", "true")
    assert "0 0-23/2 * * *" in added.err
    assert added.code == 0


def test_an_expression_can_be_looked_at_without_a_queue(covey: CommandLine) -> None:
    seen = covey("schedule", "next", *DAILY, "-n", "3")
    assert seen.code == 0
    assert [line[10:19] for line in seen.out.splitlines()] == ["T02:30:00"] * 3
    assert len(covey("schedule", "next", "--every", "90s", "--json").json) == 5


def test_a_life(covey: CommandLine) -> None:
    covey("schedule", "add", "s", "--every", "1h", "--max-attempts", "7", "true")
    ran = covey("schedule", "run", "s")
    assert covey("show", ran.out.strip(), "--json").json["max_attempts"] == 7
    second = covey("schedule", "run", "s")
    assert second.code == 1
    assert f"job {ran.out.strip()}" in second.err
    assert covey("schedule", "pause", "s", "--reason", "because", "--for", "2h").out.startswith("s: paused until 2")
    assert "because" in covey("schedule", "show", "s").out
    assert "next: 2" in covey("schedule", "resume", "s").out
    edited = covey("schedule", "edit", "s", "--every", "2h", "--priority", "3", "--json").json
    assert (edited["every"], edited["version"], edited["job"]["priority"], edited["job"]["max_attempts"]) == (
        7200,
        2,
        3,
        7,
    )
    filled = covey("schedule", "backfill", "s", "--from", "2026-01-01", "--to", "2026-01-01T04:00:00Z", "--json").json
    assert [tick["decision"] for tick in filled] == ["fired"] * 3
    assert covey("schedule", "remove", "s", "--cancel-jobs").out == "removed s, 4 jobs cancelled\n"
    assert covey("schedule", "list", "--json").json == []


def test_a_task_has_its_arguments(covey: CommandLine) -> None:
    covey("schedule", "add", "s", "--every", "1h", "--task", "m.f", "--args", '{"n": 3}')
    assert covey("schedule", "show", "s", "--json").json["job"] == {"task": "m.f", "args": {"n": 3}}


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["add", "s", "--every", "1h"], "nothing to run"),
        (["add", "s", "true"], "by one of cron, every and at, not none"),
        (["add", "s", "--every", "soon", "true"], "--every 'soon'"),
        (["add", "s", "--cron", "* *", "true"], "needs five fields"),
        (["add", "s", "--every", "1h", "--task", "t", "true"], "in one way only"),
        (["add", "s", "--every", "1h", "--args", "[]", "--", "true"], "belong to a task"),
        (["add", "s", "--every", "1h", "--key", "k", "true"], "cannot have 'key'"),
        (["add", "s", "--every", "1h", "--task", "t", "--args", "{"], "not JSON"),
        (["show", "nix"], "no schedule 'nix'"),
        (["edit", "nix"], "nothing to change"),
        (["next"], "name a schedule"),
        (["next", "s", "--cron", "* * * * *"], "name a schedule"),
        (["backfill", "there", "--from", "yesterday", "--to", "2026-01-01"], "--from 'yesterday'"),
        (["run", "there", "--overlap", "maybe"], "overlap 'maybe'"),
    ],
)
def test_nonsense_is_one_clear_line(covey: CommandLine, words: list[str], wrong: str) -> None:
    covey("schedule", "add", "there", "--every", "1h", "true")
    said = covey("schedule", *words)
    assert said.code in (1, 2)
    assert said.out == ""
    assert wrong in said.err
    assert said.err.count("\n") == 1
