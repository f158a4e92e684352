"""covey enqueue: every form of a job, every mistake, and that a mistake stores nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import CommandLine

MIB = 1 << 20


def test_the_answer_is_the_id_alone(covey: CommandLine) -> None:
    assert covey("enqueue", "true").out == "1\n"
    assert covey("enqueue", "true").out == "2\n"


def test_one_string_is_for_the_shell_and_words_after_dashes_are_not(covey: CommandLine) -> None:
    covey("enqueue", "sleep 2")
    covey("enqueue", "--", "ls", "-l", "*")
    covey("enqueue", "--", "ls")
    covey("enqueue", "--queue", "q", "echo", "hi")
    jobs = covey("list", "--json").json[::-1]
    assert [job["args"] for job in jobs] == [
        {"command": "sleep 2"},
        {"argv": ["ls", "-l", "*"]},
        {"argv": ["ls"]},
        {"argv": ["echo", "hi"]},
    ]
    assert [job["command"] for job in jobs] == ["sleep 2", "ls -l '*'", "ls", "echo hi"]


def test_a_json_object_names_its_key_id(covey: CommandLine) -> None:
    covey("enqueue", '{"id":"job1","command":"sleep 2","max_retries":5}')
    job = covey("show", "job1", "--json").json
    assert (job["id"], job["key"], job["command"], job["max_attempts"], job["max_retries"]) == (
        1,
        "job1",
        "sleep 2",
        5,
        5,
    )


def test_every_option_reaches_the_job(covey: CommandLine) -> None:
    done = covey(
        *("enqueue", "--queue", "q", "--priority", "7", "--key", "k", "--max-attempts", "9", "--timeout", "2m"),
        *(
            "--cwd",
            "/",
            "-e",
            "A=1",
            "--env",
            "HOME",
            "--batch",
            "b",
            "--label",
            "x=y",
            "--run-at",
            "2099-01-01T00:00:00Z",
            "true",
        ),
    )
    assert done.code == 0
    job = covey("show", "k", "--json").json
    assert (job["queue"], job["priority"], job["max_attempts"], job["timeout"]) == ("q", 7, 9, 120.0)
    assert (job["cwd"], job["batch"], job["labels"]) == ("/", "b", {"x": "y"})
    assert job["args"]["env"] == {"A": "1", "HOME": str(covey.directory)}
    assert (job["state"], job["run_at"]) == ("scheduled", "2099-01-01T00:00:00.000Z")


def test_the_callers_directory_is_the_jobs(covey: CommandLine) -> None:
    covey("enqueue", "pwd")
    assert covey("show", "1", "--json").json["cwd"] == str(covey.directory)


def test_a_relative_directory_in_an_object_is_the_callers_too(covey: CommandLine) -> None:
    covey("enqueue", '{"command":"pwd","cwd":"."}')
    covey("enqueue", '{"command":"pwd","cwd":"sub"}', "--cwd", "/srv")
    covey("enqueue", "-", stdin=b'{"command":"pwd","cwd":"a/.."}\n')
    here = str(covey.directory)
    assert [covey.view(id).cwd for id in (1, 2, 3)] == [here, "/srv/sub", here]


def test_an_empty_name_after_the_verb_leaves_the_database_that_was_named_before_it(covey: CommandLine) -> None:
    assert covey("--db", "named.db", "enqueue", "--db=", "true").out == "1\n"
    assert (covey.directory / "named.db").exists()
    assert covey.count() == 0


def test_the_short_way_and_typer_mean_the_same(covey: CommandLine) -> None:
    """The first of each pair is understood without typer, the second (a short option glued to its value) is not."""
    covey("enqueue", "--queue", "a", "--max-retries=4", "-e", "X=1", "true")
    covey("enqueue", "-qa", "--max-retries=4", "-eX=1", "true")
    covey("enqueue", "--priority", "3", "--", "echo", "-e", "--queue")
    covey("enqueue", "-p3", "--", "echo", "-e", "--queue")
    jobs = covey("list", "--json").json[::-1]
    for job in jobs:
        for field in ("id", "root_id", "created_at", "updated_at"):
            del job[field]
    assert jobs[0] == jobs[1]
    assert jobs[2] == jobs[3]


def test_database_before_and_after_the_verb(covey: CommandLine) -> None:
    unnamed = {"COVEY_DB": None}
    assert covey("--db", "one.db", "enqueue", "true", env=unnamed).code == 0
    assert covey("enqueue", "--db", "one.db", "true", env=unnamed).out == "2\n"
    assert covey("--db", "one.db", "enqueue", "-p1", "true", env=unnamed).out == "3\n"
    assert len(covey("--db", "two.db", "list", "--db", "one.db", "--json", env=unnamed).json) == 3


def test_the_nearest_covey_toml_names_the_database(covey: CommandLine) -> None:
    (covey.directory / "covey.toml").write_text('db = "mine.db"\n')
    assert covey("enqueue", "true", env={"COVEY_DB": None}).code == 0
    assert (covey.directory / "mine.db").exists()


def test_a_taken_key_is_refused_with_the_id_and_nothing_changes(covey: CommandLine) -> None:
    covey("enqueue", "--key", "k", "first")
    again = covey("enqueue", "--key", "k", "second")
    assert (again.code, again.out) == (1, "")
    assert "'k' is taken by job 1" in again.err
    assert covey("show", "k", "--json").json["command"] == "first"
    assert covey("enqueue", "--key", "k", "--if-exists", "return", "second").out == "1\n"
    assert covey("enqueue", "--key", "k", "--if-exists", "return", "--json", "x").json == [{"id": 1, "existing": True}]


def test_a_file_of_lines_and_objects(covey: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text('echo a\n\n# a comment\n{"id":"k","command":"echo b","queue":"q"}\n  echo c  \n')
    done = covey("enqueue", "--file", "jobs", "--batch", "night")
    assert done.ids == [1, 2, 3]
    jobs = covey("list", "--batch", "night", "--json").json[::-1]
    assert [(job["command"], job["queue"]) for job in jobs] == [
        ("echo a", "default"),
        ("echo b", "q"),
        ("echo c", "default"),
    ]
    assert covey("enqueue", "-", stdin=b"echo d\n").ids == [4]


def test_an_empty_file_queues_nothing_and_says_nothing(covey: CommandLine) -> None:
    done = covey("enqueue", "-", stdin=b"")
    assert (done.code, done.out) == (0, "")
    assert covey("enqueue", "-", "--json", stdin=b"").json == []


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (b'echo a\n{"command": }\n', ["line 2", "not a JSON object"]),
        (b'echo a\n{"command": "x", "colour": 1}\n', ["line 2", "'colour'"]),
        (b"echo a\n\xff\xfe\n", ["line 2", "UTF-8"]),
        (b'{"id":"k","command":"a"}\n{"id":"k","command":"b"}\n', ["line 2", "'k'", "line 1"]),
        (b"echo a\n" + b"x" * (MIB + 1) + b"\n", ["line 2", "limit"]),
        (b'echo a\n{"command":"a","priority":"high"}\n', ["line 2", "priority"]),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(covey: CommandLine, lines: bytes, words: list[str]) -> None:
    done = covey("enqueue", "--file", "-", stdin=lines)
    assert (done.code, done.out) == (2, "")
    assert_one_line(done.err, *words)
    assert covey.count() == 0


def test_a_key_taken_in_the_middle_of_a_file_stores_nothing(covey: CommandLine) -> None:
    covey("enqueue", "--key", "k", "true")
    done = covey("enqueue", "-", stdin=b'echo a\n{"id":"k","command":"b"}\necho c\n')
    assert (done.code, done.out) == (1, "")
    assert_one_line(done.err, "line 2", "'k'", "job 1")
    assert covey.count() == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to queue"),
        (["--"], "nothing follows --"),
        ([""], "empty"),
        (["  "], "empty"),
        (["{"], "not a JSON object"),
        (['{"command": "a"'], "not a JSON object"),
        (['{"command": "a", "command": "b"}'], "twice"),
        (['{"command": "a", "x": 1}'], "'x'"),
        (['{"command": "a", "max_retries": 0}'], "counts all runs"),
        (['{"command": "a", "max_attempts": 1, "max_retries": 2}'], "two names"),
        (['{"command": "a", "max_attempts": true}'], "whole number"),
        (['{"command": "a", "priority": NaN}'], "NaN"),
        (['{"command": "a\\u0000b"}'], "NUL"),
        (['{"command": "a\\ud800"}'], "surrogate"),
        (['{"command": 3}'], "string"),
        (['{"argv": "ls"}'], "list"),
        (['{"argv": []}'], "empty"),
        (['{"command": "a", "task": "b"}'], "command and task"),
        (["{}"], "one of command, argv and task"),
        (['{"command": "a", "run_at": "2030-01-01T00:00:00"}'], "no zone"),
        (['{"command": "a", "run_at": 5}'], "run_at"),
        (['{"command": "a", "delay": "soon"}'], "duration"),
        (['{"command": "a", "env": {"A": 1}}'], "'A'"),
        (['{"command": "a", "env": ["A"]}'], "env"),
        (['{"id": "12", "command": "a"}'], "digits"),
        (['{"id": 12, "command": "a"}'], "digits"),
        (['{"task": "t", "args": "x"}'], "args"),
        (["--max-attempts", "0", "true"], "counts all runs"),
        (["--max-retries", "0", "true"], "counts all runs"),
        (["--max-attempts", "x", "true"], "whole number"),
        (["--max-attempts", "-1", "true"], "max_attempts"),
        (["--run-at", "2030-01-01T00:00:00", "true"], "no zone"),
        (["--run-at", "2030-01-01", "true"], "no zone"),
        (["--run-at", "tomorrow", "true"], "zone"),
        (["--run-at", "0001-01-01T00:00:00+14:00", "--delay", "1s", "true"], "delay"),
        (["--delay", "5 parsecs", "true"], "duration"),
        (["--delay", "-5s", "true"], ""),
        (["--timeout", "0", "true"], "timeout"),
        (["--priority", "9999999999999", "true"], "priority"),
        (["--queue", "no spaces", "true"], "queue"),
        (["--queue", "", "true"], "queue"),
        (["--key", "123", "true"], "digits"),
        (["--key", "a\nb", "true"], "U+000A"),
        (["--if-exists", "shrug", "true"], "if_exists"),
        (["-e", "NO_SUCH_VARIABLE", "true"], "NO_SUCH_VARIABLE"),
        (["-e", "=x", "true"], "name"),
        (["--label", "x", "true"], "NAME=VALUE"),
        (["--file", "x", "true"], "one way only"),
        (["--file", "no-such-file"], "no-such-file"),
        (["--file", "x", "--key", "k"], "--key"),
        (["echo a", "echo b"], "one `covey enqueue` each"),
        (["--no-such-option", "true"], "no such option"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_stored(covey: CommandLine, words: list[str], said: str) -> None:
    done = covey("enqueue", *words)
    assert (done.code, done.out) == (2, ""), done
    assert_one_line(done.err, said)
    assert covey.count() == 0


def test_an_argument_that_is_not_text_is_refused(covey: CommandLine) -> None:
    done = covey("enqueue", b"echo \xff")
    assert (done.code, done.out) == (2, "")
    assert_one_line(done.err, "surrogate")
    assert covey("enqueue", b"--key=\xff", "true").code == 2
    assert covey.count() == 0


def test_over_one_mebibyte_is_refused_and_exactly_that_is_not(covey: CommandLine) -> None:
    frame = len(json.dumps({"command": ""}, separators=(",", ":")))
    assert covey("enqueue", "-", stdin=b"x" * (MIB - frame)).ids == [1]
    assert covey("enqueue", "-", stdin=b"x" * (MIB - frame + 1)).code == 2
    assert covey.count() == 1


def test_inside_a_job_the_database_must_be_named(covey: CommandLine) -> None:
    inside: dict[str, str | None] = {"COVEY_RUN": "x:1:1:1", "COVEY_DB": None}
    refused = covey("enqueue", "true", env=inside)
    assert (refused.code, refused.out) == (1, "")
    assert_one_line(refused.err, "inside a job")
    assert covey("enqueue", "-p1", "true", env=inside).code == 1
    assert covey("run", "true", env=inside).code == 125
    assert covey("enqueue", "--db", "here.db", "true", env=inside).code == 0
    assert covey("enqueue", "true", env={"COVEY_RUN": "x:1:1:1"}).code == 0


def test_settings_are_copied_into_new_jobs(covey: CommandLine) -> None:
    covey("config", "set", "max-retries", "7")
    covey("config", "set", "job_timeout_seconds", "12")
    covey("enqueue", "true")
    covey("config", "unset", "max_retries")
    covey("enqueue", "--timeout", "never", "true")
    assert [(job["max_attempts"], job["timeout"]) for job in covey("list", "--json").json] == [(3, None), (7, 12.0)]


def assert_one_line(err: str, *said: str) -> None:
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    for word in said:
        assert word in lines[0]
