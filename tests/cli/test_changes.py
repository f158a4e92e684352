"""What a person can change, and databases that are none."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import CommandLine

NEEDS_A_QUEUE = [
    ["list"],
    ["show", "1"],
    ["logs", "1"],
    ["cancel", "1"],
    ["retry", "1"],
    ["edit", "1", "--priority", "1"],
    ["remove", "1"],
    ["why", "1"],
    ["worker", "list"],
    ["worker", "stop"],
    ["worker", "events"],
    ["worker", "reap"],
    ["worker", "reap", "--dry-run"],
    ["dlq", "list"],
    ["dlq", "retry", "--all"],
    ["queue", "list"],
    ["queue", "pause", "q"],
    ["config", "list"],
    ["db", "check"],
    ["db", "vacuum"],
    ["db", "prune"],
    ["db", "backup", "copy.db"],
]


@pytest.mark.parametrize("words", NEEDS_A_QUEUE, ids=" ".join)
def test_no_queue_is_one_line_and_none_is_made(covey: CommandLine, words: list[str]) -> None:
    done = covey(*words)
    assert (done.code, done.out) == (1, "")
    assert_one_line(done.err, "no queue at")
    assert not covey.db.exists()


def test_wait_for_a_queue_that_is_not_there(covey: CommandLine) -> None:
    done = covey("wait", "1")
    assert (done.code, done.out) == (125, "")
    assert_one_line(done.err, "no queue at")


@pytest.mark.parametrize("verb", [["list"], ["enqueue", "true"], ["status"], ["config", "set", "max_attempts", "2"]])
def test_what_is_no_queue_is_refused(covey: CommandLine, verb: list[str]) -> None:
    root, code = covey.directory, 2 if verb == ["status"] else 1
    (root / "text.db").write_text("this is not a database, only some text that is long enough to be read as one\n" * 20)
    (root / "dir.db").mkdir()
    stranger = sqlite3.connect(root / "stranger.db")
    stranger.execute("create table t (x)")
    stranger.close()
    for name, said in (
        ("text.db", "not a SQLite database"),
        ("dir.db", "is a directory"),
        ("stranger.db", "not a Covey"),
    ):
        done = covey(*verb, "--db", name)
        assert (done.code, done.out) == (code, ""), (name, done)
        assert_one_line(done.err, said)
    done = covey(*verb, "--db", "nowhere/queue.db")
    assert (done.code, done.out) == (code, "")
    assert_one_line(done.err, "no directory")


def test_a_read_only_directory_is_one_line(covey: CommandLine) -> None:
    humbly = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []  # root may write anywhere
    covey.directory.chmod(0o500)
    done = subprocess.run(
        [*humbly, sys.executable, "-m", "covey", "enqueue", "true"],
        cwd=covey.directory,
        env=covey.environment(None),
        capture_output=True,
        text=True,
        check=False,
    )
    covey.directory.chmod(0o700)
    assert (done.returncode, done.stdout) == (1, "")
    assert_one_line(done.stderr, "")
    assert not list(covey.directory.iterdir())


def test_cancel_retry_edit_remove(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"a\nb\n")
    covey("enqueue", "c", "--key", "named")
    assert covey("cancel", "1", "named").code == 0
    assert [covey.state(ref) for ref in (1, 2, "named")] == ["cancelled", "pending", "cancelled"]
    assert covey("retry", "1").code == 0
    assert covey.state(1) == "pending"
    assert covey("edit", "1", "--priority", "5", "--queue", "q", "--max-attempts", "9").code == 0
    job = covey("show", "1", "--json").json
    assert (job["priority"], job["queue"], job["max_attempts"]) == (5, "q", 9)
    assert covey("edit", "1", "--delay", "1h").out.startswith("1 scheduled")
    assert covey("edit", "1", "--run-at", "now").out == "1 pending\n"
    refused = covey("remove", "1")
    assert (refused.code, refused.out) == (1, "")
    assert covey("remove", "named").code == 0
    assert covey("remove", "1", "--force").code == 0
    assert [job["id"] for job in covey("list", "--json").json] == [2]


def test_all_or_none(covey: CommandLine) -> None:
    covey("enqueue", "true")
    done = covey("cancel", "1", "99")
    assert (done.code, done.out) == (1, "")
    assert_one_line(done.err, "99")
    assert covey.state(1) == "pending"


def test_retry_again_makes_a_new_job(covey: CommandLine) -> None:
    covey("enqueue", "true")
    covey("cancel", "1")
    assert covey("retry", "1", "--again").out == "2\n"
    assert covey("retry", "1", "1", "--again").out == "3\n"
    assert covey.count() == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["edit", "1"], 2),
        (["edit", "1", "--run-at", "2030-01-01T00:00:00"], 2),
        (["edit", "1", "--run-at", "now", "--delay", "1s"], 2),
        (["edit", "1", "--max-attempts", "0"], 2),
        (["edit", "1", "--delay", "soon"], 2),
        (["edit", "99", "--priority", "1"], 1),
        (["retry", "1"], 1),
        (["show", "99"], 1),
        (["show", "no-such-key"], 1),
        (["show", "99999999999999999999999"], 1),
        (["show", ""], 1),
        (["logs", "99"], 1),
        (["logs", "1", "--attempt", "3"], 1),
        (["why", "99"], 1),
        (["cancel"], 2),
        (["wait"], 2),
        (["wait", "99"], 125),
        (["wait", "1", "--timeout", "x"], 125),
        (["run"], 125),
        (["dlq", "show", "1"], 1),
        (["dlq", "retry", "1"], 1),
        (["dlq", "retry"], 2),
        (["dlq", "purge", "1", "--yes"], 1),
        (["queue", "pause", "no spaces"], 2),
        (["queue", "pause", "q", "--for", "ever"], 2),
        (["queue", "resume", "nope"], 1),
        (["worker", "start", "--count", "0"], 2),
        (["worker", "start", "--count", "many"], 2),
        (["worker", "start", "--queue", "no spaces"], 2),
        (["worker", "start", "--app", "nocolon"], 2),
        (["worker", "start", "--grace", "-1"], 2),
        (["worker", "stop", "nobody"], 1),
        (["db", "prune", "--state", "pending"], 2),
        (["db", "backup", "."], 2),
        (["db", "backup", "nowhere/x.db"], 2),
        (["db", "backup", "queue.db"], 1),
        (["db", "backup", "queue.db", "--overwrite"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_refused_in_one_line_and_nothing_changed(covey: CommandLine, words: list[str], code: int) -> None:
    covey("enqueue", "true")
    before = covey.view(1)
    done = covey(*words)
    assert (done.code, done.out) == (code, ""), done
    assert_one_line(done.err)
    assert covey.view(1) == before
    assert covey.count() == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no_such_setting", "1"),
        ("max_attempts", "0"),
        ("max-retries", "x"),
        ("backoff_base", "nan"),
        ("backoff_base", "0.5"),
        ("lock_lease_seconds", "1"),
        ("durability", "maybe"),
        ("backoff_jitter", "2"),
    ],
)
def test_a_wrong_setting_changes_nothing(covey: CommandLine, name: str, value: str) -> None:
    covey("enqueue", "true")
    before = covey("config", "list", "--json").out
    done = covey("config", "set", name, value)
    assert (done.code, done.out) == (2, "")
    assert_one_line(done.err)
    assert covey("config", "list", "--json").out == before


def test_settings_and_where_they_come_from(covey: CommandLine) -> None:
    assert covey("config", "set", "max-retries", "5").out == "max_attempts = 5\n"
    assert covey("config", "get", "max_retries").out == "5\n"
    rows = {row["name"]: row for row in covey("config", "list", "--json").json}
    assert (rows["max_attempts"]["value"], rows["max_attempts"]["default"], rows["max_attempts"]["source"]) == (
        5,
        3,
        "db",
    )
    env: dict[str, str | None] = {"COVEY_MAX_CONCURRENCY": "8"}
    assert covey("config", "get", "max_concurrency", "--json", env=env).json["source"] == "env"
    assert covey("config", "unset", "max-retries").out == "max_attempts = 3\n"
    assert covey("config", "get", "nope").code == 2
    assert covey("config", "unset", "nope").code == 2


def test_queues_are_paused_for_a_while(covey: CommandLine) -> None:
    assert covey("enqueue", "true").code == 0
    assert covey("queue", "pause", "default", "--for", "1h").code == 0
    (queue,) = covey("queue", "list", "--json").json
    assert (queue["paused"], queue["resume_at"] is not None) == (True, True)
    assert covey("queue", "resume", "default").code == 0
    assert covey("queue", "list", "--json").json[0]["paused"] is False


def test_database_care(covey: CommandLine, tmp_path: Path) -> None:
    assert covey("db", "migrate").out == "applied 0001\napplied 0002\napplied 0003\nschema 3\n"
    assert covey("db", "migrate", "--json").json == {"applied": [], "schema": 3}
    covey("enqueue", "-", stdin=b"a\nb\nc\n")
    covey("cancel", "1", "2")
    assert covey("db", "check").out == "ok\n"
    assert covey("db", "backup", "copy.db").out == f"{tmp_path / 'copy.db'}\n"
    assert covey("db", "backup", "copy.db").code == 1
    assert covey("db", "backup", "copy.db", "--overwrite").code == 0
    assert len(covey("list", "--db", "copy.db", "--json").json) == 3
    assert covey("db", "prune").out == "0 jobs pruned\n"
    assert covey("db", "prune", "--older-than", "0s", "--state", "completed").out == "0 jobs pruned\n"
    assert covey("db", "prune", "--older-than", "0s", "--json").json == {"pruned": 2}
    assert [job["id"] for job in covey("list", "--json").json] == [3]
    assert covey("db", "vacuum").code == 0


def test_prune_goes_through_a_large_table(covey: CommandLine) -> None:
    ids = [str(id) for id in covey("enqueue", "-", stdin=b"x\n" * 2500).ids]
    for start in range(0, 2500, 500):
        assert covey("cancel", *ids[start : start + 500]).code == 0
    covey("enqueue", "last")
    assert covey("db", "prune", "--older-than", "0s").out == "2500 jobs pruned\n"
    assert covey.count() == 1


def test_damage_is_found(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"x\n" * 2000)
    size = covey.db.stat().st_size
    with open(covey.db, "r+b") as file:
        file.seek(size // 2)
        file.write(os.urandom(16_384))
    done = covey("db", "check")
    assert done.code == 1
    assert "Traceback" not in done.err


def test_a_wait_that_times_out_is_124(covey: CommandLine) -> None:
    covey("enqueue", "true")
    done = covey("wait", "1", "--timeout", "50ms")
    assert (done.code, done.out) == (124, "")


def test_waiting_for_cancelled_jobs_is_1_and_any_is_enough(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"a\nb\n")
    covey("cancel", "1")
    assert covey("wait", "1").code == 1
    assert covey("wait", "1", "2", "--any").code == 1
    assert covey("wait", "1", "2", "--timeout", "50ms").code == 124


def test_purging_dead_letters_needs_a_yes(covey: CommandLine) -> None:
    covey("enqueue", "true")
    assert covey("dlq", "purge", "--all", "--yes").code == 0
    assert covey("dlq", "retry", "--all").code == 0
    assert covey.count() == 1


def test_stopping_workers_where_none_are_is_fine(covey: CommandLine) -> None:
    covey("enqueue", "true")
    done = covey("worker", "stop")
    assert (done.code, done.out) == (0, "")


def test_a_stale_pool_with_the_pid_of_another_process_is_not_signalled(covey: CommandLine) -> None:
    """Its recorded start ticks differ from the stranger's, so the stranger lives on."""
    from covey import env
    from covey import open as compose
    from covey.core.turn import PoolInfo

    stranger = subprocess.Popen(["sleep", "60"])
    try:
        engine = compose.open_engine(str(covey.db))
        ticks = env.start_ticks(stranger.pid)
        assert ticks is not None
        engine.register(
            PoolInfo(
                name="old", host=env.hostname(), boot=env.boot(), pid=stranger.pid, ticks=ticks - 1, queues=None,
                kinds=("command",), count=1, version="0", lease_s=30.0,
            )
        )  # fmt: skip
        engine.close()
        assert covey("worker", "stop").code == 0
        assert covey("worker", "stop", "--now").code == 0
        assert stranger.poll() is None
        assert "gone" in covey("worker", "list").out
        doctor = covey("doctor", "--json")
        assert any("old" in finding["text"] for finding in doctor.json)
    finally:
        stranger.kill()
        stranger.wait()


def assert_one_line(err: str, *said: str) -> None:
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    for word in said:
        assert word in lines[0]
