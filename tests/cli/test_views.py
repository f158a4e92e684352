"""What can be looked at: tables for people, one JSON document for programs, nothing that steers a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from covey.cli.commands import GROUPS, VERBS
from covey.cli.printing import safe
from covey.cli.render import fit
from covey.cli.times import span
from covey.core.times import moment, seconds
from covey.core.view import JobView, Status
from covey.engine.engine import Engine
from covey.errors import InvalidInput
from covey.testing import until
from tests.kit import HandPool, command, python_task

from .conftest import CommandLine, here, lost, worker

READING = [
    ["list"],
    ["status"],
    ["queue", "list"],
    ["worker", "list"],
    ["worker", "events"],
    ["worker", "reap"],
    ["dlq", "list"],
    ["config", "list"],
    ["config", "get", "max-retries"],
    ["doctor"],
    ["db", "check"],
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_every_reading_command_prints_one_json_document(covey: CommandLine, words: list[str]) -> None:
    covey("config", "set", "max_attempts", "3")
    empty = covey(*words, "--json")
    assert empty.code == 0
    if words[-1] in ("list", "events", "reap") and words[0] != "config":
        assert empty.json == []
    covey("enqueue", "true")
    assert covey(*words, "--json").json or words[0] in ("worker", "dlq")
    assert covey(*words).code == (1 if words == ["status"] else 0)  # a job waits and nobody works


def test_jobs_have_the_shape_of_a_job_view(covey: CommandLine) -> None:
    covey("enqueue", "true")
    fields = list(JobView.__struct_fields__)
    assert list(covey("list", "--json").json[0]) == fields
    assert list(covey("show", "1", "--json").json) == [*fields, "history"]
    assert covey("why", "1", "--json").json["state"] == "pending"
    assert covey("logs", "1", "--json").json == []


def test_list_filters_and_pages(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"a\nb\nc\n")
    covey("enqueue", "d", "--queue", "q", "--delay", "1h")
    assert [job["id"] for job in covey("list", "--state", "pending", "--json").json] == [3, 2, 1]
    assert [job["id"] for job in covey("list", "-s", "pending,scheduled", "--json").json] == [4, 3, 2, 1]
    assert [job["id"] for job in covey("list", "--queue", "q", "--json").json] == [4]
    page = covey("list", "--limit", "2", "--json")
    assert [job["id"] for job in page.json] == [4, 3]
    assert "--before 3" in page.err
    assert [job["id"] for job in covey("list", "--before", "3", "--json").json] == [2, 1]
    assert covey("list", "--state", "asleep").code == 2
    assert covey("list", "--limit", "0").code == 2


def test_why_says_what_to_do(covey: CommandLine) -> None:
    covey("enqueue", "true")
    assert "no worker serves" in covey("why", "1").out
    covey("queue", "pause", "default", "--for", "1h")
    assert "paused until" in covey("why", "1").out


@pytest.mark.parametrize("columns", ["60", "20", "1"])
def test_odd_content_breaks_no_table(covey: CommandLine, columns: str) -> None:
    covey("enqueue", '{"id": "[bold]k[/nope]", "command": "\\u001b[2J[red]x\\n\\u202e日本語\\r\\u0007 :smile:"}')
    for words in (["list"], ["show", "1"], ["status"], ["why", "1"], ["config", "list"], ["doctor"], ["queue", "list"]):
        done = covey(*words, env={"COLUMNS": columns})
        assert done.code == (1 if words == ["status"] else 0), (words, done)
        assert not {char for char in done.out if ord(char) < 32 and char != "\n"} | ({"\u202e"} & set(done.out))


def test_markup_is_shown_as_it_was_written(covey: CommandLine) -> None:
    covey("enqueue", "echo '[red]x[/red] :smile:'")
    for words in (["list"], ["show", "1"]):
        assert "[red]x[/red] :smile:" in covey(*words).out


def test_an_ascii_terminal_gets_escapes(covey: CommandLine) -> None:
    covey("enqueue", "echo ü")
    done = covey("list", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert "\\xfc" in done.out


def test_a_terminal_gets_colours_and_a_pipe_does_not(covey: CommandLine) -> None:
    covey("enqueue", "true")
    master, slave = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "covey", "list"],
        env={**covey.environment(None), "TERM": "xterm", "COLUMNS": "60"},
        stdout=slave,
        stderr=slave,
        check=True,
    )
    os.close(slave)
    assert b"\x1b[34mpending" in os.read(master, 10_000)
    os.close(master)
    assert "\x1b" not in covey("list").out


def test_a_reader_that_leaves_early_is_no_error(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"echo a long line of some length\n" * 3000)
    reading = covey.popen("list", "--limit", "3000", "--json")
    assert reading.stdout
    assert reading.stderr
    reading.stdout.read(10)
    reading.stdout.close()
    assert reading.stderr.read().decode().startswith("Traceback") is False
    assert reading.wait(20) in (0, 1)


def test_a_full_disk_behind_a_redirect_is_said(covey: CommandLine) -> None:
    covey("enqueue", "true")
    with open("/dev/full", "wb") as full:
        writing = covey.popen("list", stdout=full)
        _, err = writing.communicate(timeout=120)
    assert writing.returncode == 1
    assert err.decode().startswith("error: ")
    assert b"Traceback" not in err


def test_help_knows_every_verb(covey: CommandLine) -> None:
    top = covey("--help")
    assert top.code == 0
    assert all(name in top.out for name in VERBS)
    for group, verbs in GROUPS.items():
        shown = covey(group, "--help")
        assert shown.code == 0
        assert all(name in shown.out for name in verbs)
    assert covey().out == top.out
    assert covey("--version").out.startswith("covey ")


@pytest.mark.parametrize(
    "words",
    [[name] for name in VERBS if name not in GROUPS] + [[g, v] for g in GROUPS for v in GROUPS[g]],
    ids=" ".join,
)
def test_every_verb_has_help_and_refuses_unknown_options(covey: CommandLine, words: list[str]) -> None:
    shown = covey(*words, "--help")
    assert shown.code == 0
    assert "Usage: covey " + " ".join(words) in shown.out
    refused = covey(*words, "--no-such-option")
    assert (refused.code, refused.out) == (2, "")
    assert len(refused.err.splitlines()) == 1
    assert not covey.db.exists()


def test_unknown_verbs_are_one_line_with_a_suggestion(covey: CommandLine) -> None:
    done = covey("enqueu", "true")
    assert (done.code, done.out) == (2, "")
    assert "'enqueue'" in done.err
    assert covey("worker").code == 2
    assert covey("worker", "dance").code == 2


@pytest.mark.parametrize(
    ("typed", "found"),
    [("covey en", "enqueue"), ("covey worker st", "start"), ("covey list --st", "--state"), ("covey db ba", "backup")],
)
def test_the_shell_completes_verbs_and_options(covey: CommandLine, typed: str, found: str) -> None:
    words = typed.split()
    env: dict[str, str | None] = {
        "_COVEY_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    assert found in covey(env=env).out.split()


def test_completion_can_be_shown(covey: CommandLine) -> None:
    script = covey(
        "--show-completion", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": None, "SHELL": "/bin/bash"}
    )
    assert "Traceback" not in script.err


def test_enqueue_loads_neither_typer_nor_rich(covey: CommandLine) -> None:
    code = (
        "import sys; sys.argv = ['covey', 'enqueue', 'true']\n"
        "import os; import covey.cli.main as m, covey.cli.exit_codes as e\n"
        "def end(code): print(code, sorted({'typer', 'rich', 'asyncio', 'subprocess'} & set(sys.modules)))\n"
        "m.end = end; m.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=covey.environment(None), capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n0 []\n"


def test_output_cannot_steer_the_terminal_of_the_one_who_reads_it(covey: CommandLine) -> None:
    covey("run", r"printf '\033[2J\033[31mred\033[0m [bold]x\n'")
    master, slave = pty.openpty()
    subprocess.run([sys.executable, "-m", "covey", "logs", "1"], env=covey.environment(None), stdout=slave, check=True)
    os.close(slave)
    assert os.read(master, 1000) == b"\\x1b[2Jred [bold]x\r\n"
    os.close(master)


def test_a_full_disk_and_a_note_are_both_said(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"a\nb\n")
    with open("/dev/full", "wb") as full:
        writing = covey.popen("list", "--limit", "1", stdout=full)
        _, err = writing.communicate(timeout=120)
    assert writing.returncode == 1
    assert [line.split(":")[0] for line in err.decode().splitlines()] == ["there is more", "error"]


def test_nothing_lies_beside_the_queue_after_an_error(covey: CommandLine) -> None:
    covey("enqueue", "true")
    assert covey("show", "99").code == 1
    assert sorted(os.listdir(covey.directory)) == ["queue.db", "queue.db-covey"]


# ── health ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def found(engine: Engine) -> list[tuple[str, str]]:
    return [(finding.level, finding.text) for finding in engine.status().findings]


def test_a_queue_with_nothing_wrong_is_fine_and_a_pause_is_only_noted(covey: CommandLine, engine: Engine) -> None:
    HandPool(engine, here())
    engine.enqueue([command(queue="a"), command(queue="b")])
    engine.pause("b")
    done = covey("status")
    assert done.code == 0
    assert "paused: b" in done.out
    assert covey("status", "--json").json["findings"] == [{"level": "note", "text": "paused: b", "advice": None}]
    assert engine.status().health == "fine"


def test_dead_letters_are_a_warning(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine, here())
    engine.enqueue([command(max_attempts=1)])
    pool.fail(pool.claim_one())
    done = covey("status", "--json")
    assert (done.code, done.err, done.json["health"]) == (1, "", "warning")
    assert done.json["findings"] == [{"level": "warning", "text": "1 dead letter", "advice": "`covey dlq list`"}]
    assert done.json["notes"] == ["1 dead letter; `covey dlq list`"]


def test_waiting_jobs_that_nobody_would_run_are_a_warning(engine: Engine) -> None:
    engine.enqueue([command(queue="a"), command(queue="b"), python_task(queue="a")])
    assert found(engine) == [("warning", "3 jobs wait and no worker runs")]
    pool = HandPool(engine, here(queues=("a",), kinds=("command",)))
    assert found(engine) == [
        ("warning", "1 job waits in queues that no pool serves: b"),
        ("warning", "Python tasks wait in queues whose pools cannot run them: a"),
    ]
    other = HandPool(engine, here())
    assert found(engine) == []
    engine.stop_pools([pool.id, other.id])
    assert found(engine) == [("warning", "3 jobs wait and every pool is stopping")]
    engine.pause("a")
    engine.pause("b")
    assert found(engine) == [("note", "paused: a, b")]


def test_what_was_given_up_is_a_warning_and_broken_once_jobs_wait_for_it(covey: CommandLine, engine: Engine) -> None:
    pool = HandPool(engine, here(log="/logs/pool.log"))
    pool.turn(workers=[worker("sync-8", "sync", "dead", error="no module")], given_up={"sync": "no module"})
    assert found(engine) == [("warning", "no sync worker can start in pool 1: no module")]
    engine.enqueue([command(), python_task(kind="async")])
    assert [level for level, _ in found(engine)] == ["warning"]
    (made,) = engine.enqueue([python_task()])
    assert found(engine) == [("broken", "jobs wait, and no sync worker can start in pool 1: no module")]
    done = covey("status")
    assert done.code == 2
    assert "log: /logs/pool.log" in done.out
    why = covey("why", str(made.id)).out
    assert "no sync worker can start in pool 1: no module; log: /logs/pool.log" in why
    assert "next in line" in covey("why", "1").out
    engine.pause("default")
    assert [level for level, _ in found(engine)] == ["warning", "note"]
    engine.resume("default")
    other = HandPool(engine, here())
    assert [level for level, _ in found(engine)] == ["warning"]
    assert "4 workers serve" in engine.why(made.id).reason
    engine.stop_pools([other.id])
    assert [level for level, _ in found(engine)] == ["broken"]


def test_what_was_given_up_of_one_type_holds_no_other(engine: Engine) -> None:
    pool = HandPool(engine, here(queues=("a", "b"), types={"a": 2, "b": 3}))
    pool.turn(workers=[], given_up={"a (command)": "no shell"})
    one, two = engine.enqueue([command(queue="b"), command(queue="a")])
    assert engine.why(one.id).reason == "it is next in line; 3 workers serve that queue"
    assert engine.why(two.id).reason == "no a (command) worker can start in pool 1: no shell"
    assert found(engine) == [("broken", "jobs wait, and no a (command) worker can start in pool 1: no shell")]


def test_workers_that_cannot_start_are_a_warning(engine: Engine) -> None:
    pool = HandPool(engine, here(kinds=("command", "sync")))
    dead = [worker(f"sync-{n}", "sync", "dead", error="no module") for n in (1, 2)]
    pool.turn(workers=[worker("command-1"), *dead, worker("sync-3", "sync", "starting")], given_up={})
    assert found(engine) == [("warning", "2 workers of pool 1 could not start, last sync-1: no module")]
    assert engine.status().workers == 2
    one, two = engine.enqueue([command(), python_task()])
    assert "next in line" in engine.why(one.id).reason
    assert "no sync worker could start so far in pool 1" in engine.why(two.id).reason
    pool.turn(workers=[*dead, worker("sync-3", "sync")], given_up={})
    assert "4 workers serve" in engine.why(two.id).reason


def test_a_pool_that_lives_and_is_silent_is_broken(covey: CommandLine, engine: Engine) -> None:
    HandPool(engine, here(lease_s=0.001))
    (made,) = engine.enqueue([command()])
    ((level, text),) = found(engine)
    assert level == "broken"
    assert f"pool 1 (pid {os.getpid()}) has been silent for" in text
    assert covey("status", "--json").code == 2
    assert "frozen or cannot reach the database" in engine.why(made.id).reason
    assert "frozen" in covey("worker", "list").out


def test_lost_pools_and_orphans_are_a_warning_and_serve_nobody(engine: Engine) -> None:
    engine.enqueue([command(), command()])
    pool = HandPool(engine, lost(name="mill"))
    pool.claim_one()
    far = HandPool(engine, name="far", lease_s=0.001)
    until(lambda: next(p for p in engine.pool_views() if p.id == far.id).beat_age_s > 0.001, 5, "its lease is over")
    assert found(engine) == [
        ("warning", "pools are gone: mill (1 jobs)"),
        ("warning", "pools are gone: far on host-a (0 jobs)"),
        ("warning", "1 job waits and no worker runs"),
    ]
    assert (engine.status().pools, engine.status().workers) == (0, 0)
    assert "no worker serves the queue" in engine.why(2).reason
    engine.store.ask("remove_pool", pool=pool.id)
    assert ("warning", "1 jobs belong to pools that are no longer known") in found(engine)


def test_a_queue_that_cannot_be_read_is_broken(covey: CommandLine) -> None:
    missing = covey("status", "--json")
    assert (missing.code, missing.json["health"]) == (2, "broken")
    covey("enqueue", "-", stdin=b"true\n" * 500)
    whole = covey("status", "--json").json
    assert list(missing.json) == list(whole) == list(Status.__struct_fields__)
    data = bytearray(covey.db.read_bytes())
    data[100:] = b"\x5a" * (len(data) - 100)  # the header still says that it is a database
    covey.db.write_bytes(data)
    for words in (["status"], ["status", "--json"]):
        done = covey(*words)
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
        assert "damaged" in done.err
    assert done.json["findings"][0]["level"] == "broken"
    assert "damaged" in done.json["notes"][0]


# ── small parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5h", 5400),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1w", 604800),
    ],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text, "x") == value


@pytest.mark.parametrize("text", ["", "s", "h2", "2 hours", "-5s", "1e3", "٣s", "inf", "nan", "1h 2x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInput):
        seconds(text, "x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        ("1970-01-01 00:00:00-00:30", 1_800_000_000),
    ],
)
def test_moments(text: str, value: int) -> None:
    assert moment(text, "x") == value


def test_spans() -> None:
    assert [span(s) for s in (0.25, 9.99, 59, 61, 3600, 3661, 86400, 900000)] == [
        *("0.2s", "10.0s", "59s", "1m 1s", "1h", "1h 1m", "1d", "10d"),
    ]


def test_tables_fit() -> None:
    assert fit([2, 9, 50], 200, 2) == [2, 9, 50]
    assert fit([2, 9, 50], 40, 2) == [2, 9, 25]
    assert sum(fit([20, 30, 1_000_000], 40, 2)) + 4 <= 40
    assert fit([5, 5], 1, None) == [1, 1]


def test_nothing_steers_the_terminal() -> None:
    assert safe("a\x1b[31mb\x9b\x00\x7f\r\t\n\u202e\ud800ü日") == "a\\x1b[31mb\\x9b\\x00\\x7f\\x0d\t\n\\u202e\\ud800ü日"
