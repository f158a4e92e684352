"""What scripts that were written for other queues type, as they stand."""

from __future__ import annotations

import json

import pytest

from covey.cli.commands import GROUPS, HINTS, VERBS
from covey.env import alive

from .conftest import CommandLine

LISTING = [
    ["list"],
    ["dlq", "list"],
    ["queue", "list"],
    ["worker", "list"],
]


@pytest.mark.parametrize("words", LISTING, ids=" ".join)
def test_before_there_is_a_queue_nothing_is_in_it(covey: CommandLine, words: list[str]) -> None:
    done = covey(*words)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"no queue yet at {covey.db}; the first `covey enqueue` makes one\n"
    assert covey(*words, "--json").json == []
    assert not covey.db.exists()


def test_before_there_is_a_queue_status_settings_and_stop_answer_too(covey: CommandLine) -> None:
    assert covey("status").code == 0
    found = covey("status", "--json")
    assert (found.code, found.json["health"], found.json["counts"]) == (0, "fine", {})
    assert covey("worker", "stop").code == 0
    assert covey("config", "get", "max-retries").out == "3\n"
    assert covey("config", "show").out == covey("config", "get").out != ""
    assert not covey.db.exists()


def test_status_judges_only_when_it_is_asked_to(covey: CommandLine) -> None:
    missing = covey("status", "--check")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith("error: no queue at ")
    covey("enqueue", "true")
    assert covey("status").code == 0
    assert covey("status", "--check").code == 1  # a job waits and nobody works
    covey.db.write_bytes(b"damaged" * 1000)
    assert covey("status").code == 2


def test_a_job_as_it_was_printed_can_be_enqueued(covey: CommandLine) -> None:
    covey("enqueue", "-e", "A=1", "-q", "mail", "--max-attempts", "5", "echo $A")
    covey("enqueue", "--", "printf", "%s", "a b")
    for number in (1, 2):
        printed = covey("show", str(number), "--json").out
        done = covey("enqueue", printed)
        assert done.code == 0, done
        assert done.err.startswith("covey: ")
        assert all(name in done.err for name in ("state", "attempts", "created_at", "id"))
        new, old = covey("show", done.out.strip(), "--json").json, json.loads(printed)
        same = ("command", "args", "queue", "max_attempts", "cwd", "key", "kind", "timeout")
        assert [new[name] for name in same] == [old[name] for name in same]


def test_the_object_of_a_job_with_all_its_fields_is_understood(covey: CommandLine) -> None:
    given = {"id": "job1", "command": "echo hi", "state": "pending", "attempts": 0, "max_retries": 3}
    given |= {"created_at": "2025-11-04T10:30:00Z", "updated_at": "2025-11-04T10:30:00Z"}
    done = covey("enqueue", json.dumps(given))
    assert done.code == 0
    assert (
        done.err
        == "covey: state, attempts, created_at, updated_at: what Covey says of a job is not asked for; left out\n"
    )
    assert covey("show", "job1", "--json").json["max_attempts"] == 3
    refused = covey("enqueue", json.dumps({**given, "id": "job2", "colour": "red"}))
    assert refused.code == 2
    assert "unknown field 'colour'" in refused.err


def test_options_under_the_names_that_others_gave_them(covey: CommandLine) -> None:
    assert covey("enqueue", "--id", "job1", "--command", "echo hi", "--retries", "5").out == "1\n"
    job = covey("show", "job1", "--json").json
    assert (job["key"], job["command"], job["max_attempts"]) == ("job1", "echo hi", 5)
    assert covey("enqueue", "--command", "a", "b").code == 2


def test_durations_may_be_words(covey: CommandLine) -> None:
    assert covey("enqueue", "--delay", "3 hours", "true").code == 0
    assert covey("enqueue", "--timeout", "1 hour and 30 minutes", "true").code == 0
    assert covey("show", "2", "--json").json["timeout"] == 5400
    assert "'3 hours'" in covey("enqueue", "--delay", "3 apples", "true").err


@pytest.mark.parametrize("name", HINTS)
def test_a_name_of_another_queue_is_answered_with_ours(covey: CommandLine, name: str) -> None:
    done = covey(name, "x")
    assert done.code == 2
    assert f"there is no `covey {name}`; here it is `{HINTS[name]}`" in done.err


def test_every_hint_names_a_verb_that_is_there() -> None:
    for hint in HINTS.values():
        verb, *more = hint.removeprefix("covey ").replace(",", "").split()
        if verb.startswith("-"):
            continue
        assert verb in VERBS or verb.rstrip(";") in VERBS, hint
        if verb in GROUPS and more and more[0].isalpha() and more[0].islower():
            assert more[0] in GROUPS[verb], hint


def test_help_and_the_version_are_found_under_their_other_names(covey: CommandLine) -> None:
    assert covey("help").out == covey("--help").out
    assert covey("help", "enqueue").out == covey("enqueue", "--help").out
    assert covey("-V").out == covey("--version").out


@pytest.mark.parametrize("way", ["short", "typer"])
def test_everything_after_the_first_word_belongs_to_the_command(covey: CommandLine, way: str) -> None:
    first = ["--priority", "-1"] if way == "typer" else ["--priority", "1"]  # the short way knows no negative numbers
    for words, said in (
        (["ls", "-al"], ""),
        (
            ["make", "--queue", "q", "all"],
            "covey: --queue is the command's here, behind 'make'; options of covey's own go ",
        ),
        (["git", "commit", "--", "-m"], ""),
    ):
        done = covey("enqueue", *first, *words)
        assert done.code == 0
        assert done.err.startswith(said) if said else done.err == ""
        job = covey("show", done.out.strip(), "--json").json
        assert (job["args"], job["queue"]) == ({"argv": words}, "default")


def test_behind_a_line_an_object_or_stdin_our_options_may_follow(covey: CommandLine) -> None:
    assert covey("enqueue", "echo a", "--queue", "q").out == "1\n"
    assert covey("enqueue", '{"command": "true"}', "-q", "q").out == "2\n"
    assert covey("enqueue", "-", "--queue", "q", stdin=b"true\n").out == "3\n"
    assert {job["queue"] for job in covey("list", "--json").json} == {"q"}


def test_several_lines_are_refused_with_advice(covey: CommandLine) -> None:
    done = covey("enqueue", "echo a", "echo b")
    assert done.code == 2
    assert "2 commands, 'echo a' the first: one `covey enqueue` each" in done.err
    assert covey.count() == 0


def test_detached_workers_are_ready_when_the_command_returns_and_gone_after_stop(covey: CommandLine) -> None:
    done = covey("worker", "start", "--count", "2", "--detach")
    assert (done.code, done.out.split(" (")[0]) == (0, "pool 1")
    assert done.out.endswith("): 2 workers ready\n")
    assert "`covey worker stop 1` ends it" in done.err
    (pool,) = covey("worker", "list", "--json").json
    assert [worker["state"] for worker in pool["workers"]] == ["idle", "idle"]
    covey("enqueue", "echo hi")
    assert covey("wait", "1").code == 0
    assert covey("worker", "stop").code == 0
    assert not alive(pool["pid"], pool["ticks"])


def test_what_cannot_start_detached_is_said_with_its_exit_code(covey: CommandLine) -> None:
    done = covey("worker", "start", "-d", "--worker", "x=0")
    assert done.code == 2
    assert "nobody would work" in done.err
    assert covey("worker", "list", "--json").json == []
