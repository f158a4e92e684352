"""Verbs that need workers: run, logs, wait, cancel, retry, worker, dlq, demo."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys

import psutil
import pytest

from .conftest import CommandLine, until


def test_run_without_a_pool_ends_as_its_command_does(covey: CommandLine) -> None:
    done = covey("run", "echo out; echo err >&2")
    assert (done.code, done.out, done.err) == (0, "out\n", "err\n")
    assert covey("worker", "list", "--json").json == []


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 7", 7), ("kill -9 $$", 137), ("no-such-command-here", 127)],
    ids=lambda value: str(value),
)
def test_run_exits_with_the_commands_code(covey: CommandLine, command: str, code: int) -> None:
    done = covey("run", "--max-attempts", "1", command)
    assert done.code == code
    assert "dead" in done.err.splitlines()[-1]


def test_run_takes_words_and_a_key(covey: CommandLine) -> None:
    done = covey("run", "--key", "k", "--", "printf", "%s|", "a b", "*")
    assert (done.code, done.out) == (0, "a b|*|")
    assert covey.state("k") == "completed"
    again = covey("run", "--key", "k", "true")
    assert (again.code, again.out) == (125, "")


def test_run_out_of_time_is_124_and_leaves_nothing(covey: CommandLine) -> None:
    done = covey("run", "--timeout", "1s", "exec sleep 54321")
    assert done.code == 124
    assert covey.state(1) == "cancelled"
    assert not processes("54321")


def test_run_on_a_paused_queue_says_so(covey: CommandLine) -> None:
    covey("enqueue", "--queue", "other", "true")
    covey("queue", "pause", "default")
    done = covey("run", "true")
    assert done.code == 125
    assert "paused" in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupting_run_cancels_the_job_and_its_processes(covey: CommandLine, number: int, code: int) -> None:
    running = covey.popen("run", "echo started; exec sleep 65432")
    assert running.stdout
    assert running.stdout.readline() == b"started\n"
    running.send_signal(number)
    running.communicate(timeout=120)
    assert running.returncode == code
    assert covey.state(1) == "cancelled"
    assert not processes("65432")


def test_a_new_users_five_minutes(covey: CommandLine) -> None:
    pool = covey.pool("--count", "4")
    ids = covey("enqueue", "-", stdin=b"echo hello\n" * 9 + b"echo broken >&2; exit 3\n", env=None).ids
    covey("edit", "10", "--max-attempts", "1")
    assert covey("wait", *map(str, ids[:9]), "--timeout", "30s").code == 0
    until(lambda: covey.state(10) in ("failed", "dead"))
    assert "exit code 3" in covey("why", "10").out
    assert "exit code 3" in covey("show", "10").out
    assert covey("logs", "10").err == "broken\n"
    (pools,) = covey("worker", "list", "--json").json
    assert (pools["pid"], pools["count"]) == (pool.pid, 4)
    assert "command-1" in covey("worker", "list", env={"COLUMNS": "60"}).out
    stopped = covey("worker", "stop")
    assert stopped.code == 0
    assert f"pid {pool.pid}" in stopped.out
    assert pool.wait(60) == 0
    assert covey("worker", "list", "--json").json == []


def test_dead_letters_are_listed_shown_retried_and_purged(covey: CommandLine) -> None:
    covey("enqueue", "test -e ready || exit 3", "--max-attempts", "1", "--key", "k")
    covey("enqueue", "exit 4", "--max-attempts", "1")
    covey.pool("--count", "1")
    assert covey("wait", "1", "2", "--timeout", "30s").code == 3
    assert [job["id"] for job in covey("dlq", "list", "--json").json] == [2, 1]
    assert covey("dlq", "list", env={"COLUMNS": "60"}).code == 0
    assert covey("dlq", "show", "k", "--json").json["history"][0]["exit_code"] == 3
    assert covey("wait", "2").code == 4
    (covey.directory / "ready").touch()
    assert covey("dlq", "retry", "k").code == 0
    assert covey("wait", "k", "--timeout", "30s").code == 0
    refused = covey("dlq", "retry", "k", "2")
    assert (refused.code, refused.out) == (1, "")
    assert covey.state(2) == "dead"
    assert covey("dlq", "purge", "--all").code == 1
    assert covey.state(2) == "dead"
    assert covey("dlq", "purge", "--all", "--yes").out == "1 removed\n"
    assert covey("dlq", "list", "--json").json == []


def test_logs_follow_a_running_job_to_its_end(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", "echo one; echo two >&2; until test -e go; do sleep 0.02; done; echo three")
    following = covey.popen("logs", "-f", "1")
    assert following.stdout
    assert following.stdout.readline() == b"one\n"
    assert covey("logs", "1").out == "one\n"
    (covey.directory / "go").touch()
    out, err = following.communicate(timeout=120)
    assert (following.returncode, out, err) == (0, b"three\n", b"two\n")
    assert (covey("logs", "1").out, covey("logs", "1").err) == ("one\nthree\n", "two\n")
    assert covey("logs", "-f", "1").out == "one\nthree\n"


def test_following_loses_and_repeats_nothing_of_a_long_output(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", "for i in $(seq 20000); do echo line $i; done; until test -e go; do sleep 0.02; done; echo ünd")
    following = covey.popen("logs", "--follow", "1")
    assert following.stdout
    assert following.stdout.readline() == b"line 1\n"
    (covey.directory / "go").touch()
    out, _ = following.communicate(timeout=120)
    assert out.decode().splitlines() == [f"line {i}" for i in range(2, 20001)] + ["ünd"]


def test_output_beyond_the_cap_is_followed_to_its_end(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", "for i in $(seq 400000); do echo line $i; done")
    numbers = [int(line.split()[1]) for line in covey("logs", "-f", "1").out.splitlines() if line.startswith("line ")]
    assert numbers[-1] == 400_000
    assert all(before < after for before, after in itertools.pairwise(numbers))
    stored = covey("logs", "1").out
    assert stored.startswith("line 1\n")
    assert "bytes dropped here" in stored
    assert stored.endswith("line 400000\n")


def test_attempts_can_be_chosen(covey: CommandLine) -> None:
    covey("config", "set", "backoff_base", "1")
    covey("enqueue", "echo run >>runs; echo attempt $(wc -l <runs); test $(wc -l <runs) = 2", "--max-attempts", "2")
    covey.pool("--count", "1")
    assert covey("wait", "1", "--timeout", "30s").code == 0
    assert covey("logs", "1").out == "attempt 2\n"
    assert covey("logs", "1", "--attempt", "1").out == "attempt 1\n"
    assert covey("logs", "1", "--all").out == "attempt 1\nattempt 2\n"
    assert [run["number"] for run in covey("logs", "1", "--all", "--json").json] == [1, 2]
    assert covey("logs", "1", "--attempt", "3").code == 1


def test_odd_output_is_harmless_in_every_view(covey: CommandLine) -> None:
    odd = r"printf '\033[2J\377\000[red]x[/red]\r\n'"
    covey.pool("--count", "1")
    covey("enqueue", f"{odd}; {odd} >&2; exit 1", "--max-attempts", "1")
    assert covey("wait", "1", "--timeout", "30s").code == 1
    assert covey("logs", "1").out == "\x1b[2J\ufffd\ufffd[red]x[/red]\r\n"
    for words in (["show", "1"], ["why", "1"], ["dlq", "list"], ["list"]):
        assert "\x1b" not in covey(*words).out
        covey(*words, "--json").json  # noqa: B018


def test_retry_waits_for_a_job_that_is_still_stopping(covey: CommandLine) -> None:
    covey.pool("--count", "2")
    covey("enqueue", "trap '' TERM; echo up; until test -e go; do sleep 0.05; done", "--key", "deaf")
    until(lambda: covey("logs", "deaf").out == "up\n")
    assert covey("cancel", "deaf").code == 0
    retrying = covey.popen("retry", "deaf")
    assert retrying.stderr
    assert b"still stopping" in retrying.stderr.readline()
    (covey.directory / "go").touch()
    assert retrying.wait(20) == 0
    assert covey("wait", "deaf", "--timeout", "30s").code == 0


def test_forced_removal_waits_until_the_processes_are_gone(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", "exec sleep 76543")
    until(lambda: processes("76543"))
    assert covey("remove", "1", "--force").code == 0
    assert not processes("76543")
    assert covey("list", "--json").json == []


def test_forced_removal_of_a_root_waits_for_the_processes_of_its_children(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", f"{sys.executable} -m covey spawn 'exec sleep 76544'")
    until(lambda: covey.count() == 2 and covey.state(2) == "processing")
    done = covey("remove", "1", "--force")
    assert (done.code, done.out) == (0, "1 removed\n"), done
    assert done.err == "job 2, below job 1, is still stopping; remove it once that is gone; waiting\n"
    assert not processes("76544")
    assert covey("list", "--json").json == []


def test_forced_removal_that_is_interrupted_leaves_the_job_cancelled(covey: CommandLine) -> None:
    covey.pool("--count", "1")
    covey("enqueue", "trap '' TERM; until test -e go; do sleep 0.05; done", "--key", "deaf")
    until(lambda: covey.state("deaf") == "processing")
    removing = covey.popen("remove", "deaf", "--force")
    assert removing.stderr
    assert b"still stopping" in removing.stderr.readline()
    removing.send_signal(signal.SIGINT)
    assert removing.wait(20) == 130
    assert removing.stderr.read() == b""
    assert covey.state("deaf") == "cancelled"
    (covey.directory / "go").touch()
    assert covey("remove", "deaf", "--force").code == 0


def test_retry_of_a_job_whose_pool_was_killed_says_what_to_do(covey: CommandLine) -> None:
    pool = covey.pool("--count", "1")
    covey("enqueue", "exec sleep 76545")
    until(lambda: covey.state(1) == "processing")
    pool.send_signal(signal.SIGSTOP)  # so that it cannot end the job first
    covey("cancel", "1")
    pool.kill()
    pool.wait()
    done = covey("retry", "1")
    assert done.code == 1
    assert done.err.startswith("error: job 1 was cancelled while it ran, and pool 1 (")
    assert done.err.endswith("is gone; `covey worker reap` does it, then try again\n")
    assert covey("worker", "reap").code == 0
    assert covey("retry", "1").code == 0


def test_stopping_waits_for_running_jobs_and_now_hands_them_back(covey: CommandLine) -> None:
    pool = covey.pool("--count", "1")
    covey("enqueue", "until test -e go; do sleep 0.05; done")
    until(lambda: covey.state(1) == "processing")
    waiting = covey("worker", "stop", "--timeout", "1s")
    assert waiting.code == 1
    assert "waiting for 1 running jobs: 1" in waiting.err
    assert pool.poll() is None
    assert covey("worker", "stop", "--now").code == 0
    assert pool.wait(60) is not None
    assert covey("show", "1", "--json").json["attempts"] == 0
    assert covey.state(1) == "pending"


def test_help_and_wrong_flags_never_start_claiming(covey: CommandLine) -> None:
    covey("enqueue", "true")
    for words in (["--help"], ["--no-such-flag"], ["--count", "x"], ["extra-word"]):
        covey("worker", "start", *words)
    assert covey("show", "1", "--json").json["attempts"] == 0


def test_drain_ends_when_nothing_is_left(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"true\n" * 20)
    covey("enqueue", "--delay", "1h", "true")
    assert covey("worker", "start", "--drain", "--count", "2", "--quiet").code == 0
    counts = covey("status", "--json").json["counts"]
    assert (counts["completed"], counts["scheduled"], counts["pending"]) == (20, 1, 0)


def test_tasks_can_be_queued_as_json(covey: CommandLine) -> None:
    (covey.directory / "jobs.py").write_text(
        "from covey import Covey\napp = Covey()\n\n@app.task\ndef add(a: int, b: int = 1) -> int:\n    return a + b\n\n"
        "@app.task\nasync def double(a: int) -> int:\n    return 2 * a\n"
    )
    covey("enqueue", '{"task": "jobs.double", "kind": "async", "args": [4]}')
    covey("enqueue", '{"task": "jobs.add", "args": [1]}', '{"task": "jobs.add", "args": {"a": 1, "b": 5}}')
    covey("enqueue", '{"task": "jobs.add"}', "--max-attempts", "1")
    covey.env["PYTHONPATH"] = str(covey.directory)
    assert covey("worker", "start", "--app", "jobs:app", "--drain", "--quiet", "--count", "1").code == 0
    jobs = covey("list", "--json").json[::-1]
    assert [(job["state"], job["result"]) for job in jobs] == [
        ("completed", 8),
        ("completed", 2),
        ("completed", 6),
        ("dead", None),
    ]


def test_the_demo_ends_well_and_leaves_nothing(covey: CommandLine) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "covey", "demo"],
        env={**covey.environment({"COVEY_DB": None}), "TMPDIR": str(covey.directory)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("completed") == 13
    assert done.stdout.count("dead  ") == 2
    assert os.listdir(covey.directory) == []
    assert not processes(str(covey.directory))


def processes(mark: str) -> list[psutil.Process]:
    """Living processes with that word in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if (
            process.pid != os.getpid()
            and process.info["status"] != psutil.STATUS_ZOMBIE
            and any(mark in w for w in words)
        ):
            found.append(process)
    return found
