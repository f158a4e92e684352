"""The job of `covey run` ends with it, whatever ends it, whoever works on it; and what it wrote is printed once."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from covey.system import process_tree

from .conftest import CommandLine, until
from .test_remote import serve

# Long leases: whoever sees within seconds that a process of this host is gone has looked at that process.
LEASE = "3600"
TICKING = "echo $$ >pid; while echo tick; do sleep 0.05; done"


@pytest.fixture(params=["own pool", "other pool", "server"])
def workers(request: pytest.FixtureRequest, covey: CommandLine) -> str:
    """Who will work on the job; the command line is on that queue."""
    covey("config", "set", "lock_lease_seconds", LEASE)
    if request.param == "server":
        covey.env["COVEY_DB"] = serve(covey)
    if request.param != "own pool":
        covey.pool("--count", "2")
    return str(request.param)


def start(covey: CommandLine, *words: str, **options: object) -> subprocess.Popen[bytes]:
    return covey.popen("run", *words, **options)


def first_line(running: subprocess.Popen[bytes]) -> bytes:
    assert running.stdout
    return running.stdout.readline()


def temporary_pools(covey: CommandLine) -> list[int]:
    """Pools that a `run` has started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "--parent-pid" in words and words[words.index("--db") + 1] == covey.env["COVEY_DB"]:
            found.append(process.pid)
    return found


def is_over(covey: CommandLine, pid: int, workers: str) -> bool:
    """The job is cancelled, its processes are gone, and so is a pool that was there for it alone."""
    if psutil.pid_exists(pid) or temporary_pools(covey):
        return False
    view = covey.view(1)
    with covey.engine() as engine:
        if process_tree.marked(f"{engine.database_id}:") and workers == "own pool":
            return False
        left = len(engine.pool_views()) - (workers != "own pool")
    return (view.state, view.pool, left) == ("cancelled", None, 0)


def kill(number: int) -> Callable[[subprocess.Popen[bytes]], None]:
    return lambda running: running.send_signal(number)


def close_the_pipe(running: subprocess.Popen[bytes]) -> None:
    assert running.stdout
    running.stdout.close()


SOON_S = 2.0  # is promised, on an idle machine, for whatever this host works on

DEATHS = {
    "KILL": (kill(signal.SIGKILL), -signal.SIGKILL),
    "SEGV": (kill(signal.SIGSEGV), -signal.SIGSEGV),
    "HUP": (kill(signal.SIGHUP), 129),
    "TERM": (kill(signal.SIGTERM), 143),
    "INT": (kill(signal.SIGINT), 130),
    "closed pipe": (close_the_pipe, 141),
}


@pytest.mark.parametrize("death", DEATHS)
def test_whatever_ends_run_nothing_of_its_job_survives(covey: CommandLine, workers: str, death: str) -> None:
    act, code = DEATHS[death]
    with open(covey.directory / "said", "wb") as said:
        running = start(covey, TICKING, stderr=said)
    assert first_line(running) == b"tick\n"
    pid = int((covey.directory / "pid").read_text())
    act(running)
    assert running.wait(30) == code
    until(lambda: is_over(covey, pid, workers), SOON_S)
    told = (covey.directory / "said").read_text()
    assert "Traceback" not in told
    if death == "closed pipe":
        assert told == ""
    if code < 0:  # it could not cancel the job itself
        assert "the `covey run` that asked for it is gone (pid " in covey("why", "1", "--db", str(covey.db)).out
    with covey.engine() as engine:
        until(lambda: engine.callers() == [], 30)


def test_a_terminal_that_is_closed_ends_the_job(covey: CommandLine, workers: str) -> None:
    master, slave = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", LEADER, sys.executable, "-m", "covey", "run", TICKING],
        cwd=covey.directory,
        env=covey.environment(None),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    seen = b""
    while b"tick" not in seen:
        seen += os.read(master, 1000)
    pid = int((covey.directory / "pid").read_text())
    os.close(master)
    assert running.wait(30) in (129, 141)  # told so, or found that nobody reads
    until(lambda: is_over(covey, pid, workers), 30)


LEADER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_run_that_is_stopped_for_a_while_keeps_its_job(covey: CommandLine, workers: str) -> None:
    running = start(covey, "echo $$ >pid; echo began; until test -e go; do sleep 0.05; done; echo done")
    assert first_line(running) == b"began\n"
    running.send_signal(signal.SIGSTOP)
    with covey.engine() as engine:

        def beats() -> int:
            return min(pool.beat for pool in engine.pools())

        before = beats()
        until(lambda: beats() > before + 1, 40)  # whoever looks has looked again and again
    assert covey.state(1) == "processing"
    (covey.directory / "go").touch()
    until(lambda: covey.state(1) == "completed")
    running.send_signal(signal.SIGCONT)
    assert running.communicate(timeout=30) == (b"done\n", b"")
    assert running.returncode == 0


def test_a_job_that_is_kept_goes_on_when_its_run_is_killed(covey: CommandLine, workers: str) -> None:
    running = start(covey, "--keep", "echo began; until test -e go; do sleep 0.05; done; echo done >>done")
    assert first_line(running) == b"began\n"
    with covey.engine() as engine:
        assert engine.callers() == []
    running.kill()
    running.wait()
    covey("enqueue", "true")  # what a temporary pool still does before it goes
    (covey.directory / "go").touch()
    until(lambda: (covey.state(1), covey.state(2)) == ("completed", "completed"))
    until(lambda: len(covey.pids()) == (workers != "own pool"))


def test_a_kept_job_goes_on_after_ctrl_c_and_run_says_so(covey: CommandLine) -> None:
    running = start(covey, "--keep", "echo began; until test -e go; do sleep 0.05; done")
    assert first_line(running) == b"began\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=30) == (b"", b"covey: job 1 goes on; `covey logs -f 1` shows it\n")
    assert running.returncode == 130
    assert covey.state(1) == "processing"
    (covey.directory / "go").touch()
    until(lambda: covey.state(1) == "completed")
    until(lambda: not covey.pids())


def test_a_job_that_still_waits_is_cancelled_before_anybody_claims_it(covey: CommandLine) -> None:
    """Nobody was there to see its run die."""
    pool = covey.pool("--count", "1")
    covey("enqueue", "touch began; until test -e go; do sleep 0.05; done")
    until((covey.directory / "began").exists)
    running = start(covey, "touch ran")
    until(lambda: covey.count() == 2)
    pool.send_signal(signal.SIGSTOP)
    running.kill()
    running.wait()
    pool.kill()
    pool.wait()
    (covey.directory / "go").touch()
    covey.popen("worker", "start", "--count", "1", "--drain").wait(30)
    assert (covey.state(1), covey.state(2)) == ("completed", "cancelled")
    assert not (covey.directory / "ran").exists()


def test_the_pool_of_a_run_that_was_killed_does_not_stay_for_others_jobs(covey: CommandLine) -> None:
    covey("enqueue", "-", stdin=b"touch first; sleep 1000\n" + b"sleep 1000\n" * 3)
    running = start(covey, "true", stderr=subprocess.DEVNULL)
    until((covey.directory / "first").exists)
    running.kill()
    running.wait()
    until(lambda: not covey.pids() and not temporary_pools(covey), 40)
    views = [covey.view(id) for id in range(1, 6)]
    assert [(view.state, view.attempts) for view in views] == [("pending", 0)] * 4 + [("cancelled", 0)]


def test_a_second_ctrl_c_ends_run_at_once_and_the_job_all_the_same(covey: CommandLine) -> None:
    running = start(covey, "trap '' TERM; echo $$ >pid; echo began; while :; do sleep 0.1; done")
    assert first_line(running) == b"began\n"
    pid = int((covey.directory / "pid").read_text())
    running.send_signal(signal.SIGINT)
    assert running.stderr
    assert running.stderr.readline() == b"covey: cancelling job 1\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    until(lambda: is_over(covey, pid, "own pool"), 30)


def test_a_reader_who_has_enough_ends_run_although_its_command_never_ends(covey: CommandLine) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m covey run --timeout 10m yes | head -1"],
        cwd=covey.directory,
        env=covey.environment(None),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"y\n", b"")
    assert covey.state(1) == "cancelled"
    until(lambda: not temporary_pools(covey))


def test_time_is_over_although_nobody_reads(covey: CommandLine) -> None:
    running = start(covey, "--timeout", "2s", "echo $$ >pid; exec yes", stderr=subprocess.DEVNULL)
    assert running.wait(50) == 124
    assert covey.state(1) == "cancelled"
    with suppress(FileNotFoundError):  # on a machine that is so busy that it did not begin in time
        assert not psutil.pid_exists(int((covey.directory / "pid").read_text()))


def test_time_is_over_although_nobody_reads_what_run_itself_has_to_say(covey: CommandLine) -> None:
    running = start(covey, "--timeout", "2s", "exec yes >&2", stdout=subprocess.DEVNULL)
    assert running.wait(50) == 124
    assert covey.state(1) == "cancelled"


def test_time_is_over_although_a_terminal_shows_nothing_any_more(covey: CommandLine) -> None:
    """As after Ctrl-S: a terminal says that it can be written to, and takes less than it is given."""
    master, slave = pty.openpty()
    running = start(covey, "--timeout", "2s", "exec yes", stdout=slave, stderr=subprocess.DEVNULL)
    os.close(slave)
    try:
        assert running.wait(50) == 124
    finally:
        os.close(master)
    assert covey.state(1) == "cancelled"


# ── what is printed ─────────────────────────────────────────────────────────────────────────────────────────────────

NOISE = "seq 1 20000; seq 1 20000 | sed s/^/e/ >&2; touch said"
OUT = "".join(f"{n}\n" for n in range(1, 20001)).encode()
ERR = "".join(f"e{n}\n" for n in range(1, 20001)).encode()


def run_to_files(covey: CommandLine, *words: str) -> tuple[subprocess.Popen[bytes], Path, Path]:
    out, err = covey.directory / "out", covey.directory / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        return start(covey, *words, stdout=stdout, stderr=stderr), out, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_every_byte_is_printed_once_when_run_is_interrupted(covey: CommandLine, number: int, code: int) -> None:
    running, out, err = run_to_files(covey, f"trap 'echo bye; echo bye >&2; exit' TERM; {NOISE}; sleep 1000 & wait")
    until((covey.directory / "said").exists)
    running.send_signal(number)
    assert running.wait(30) == code
    assert out.read_bytes() == OUT + b"bye\n"
    assert sorted(err.read_bytes().splitlines()) == sorted([*ERR.splitlines(), b"bye", b"covey: cancelling job 1"])


def test_every_byte_is_printed_once_when_time_is_over(covey: CommandLine, workers: str) -> None:
    running, out, err = run_to_files(covey, "--timeout", "5s", f"{NOISE}; exec sleep 1000")
    assert running.wait(50) == 124
    if (covey.directory / "said").exists():  # else the machine was so busy that it did not come that far
        assert out.read_bytes() == OUT
        assert err.read_bytes() == ERR + b"covey: time is over, job 1 was cancelled\n"
    assert OUT.startswith(out.read_bytes())


def test_what_a_slow_reader_has_not_read_when_run_is_interrupted_comes_once(covey: CommandLine) -> None:
    running = start(covey, f"{NOISE}; exec sleep 1000", stderr=subprocess.DEVNULL)
    until((covey.directory / "said").exists)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=50)
    assert running.returncode == 130
    assert OUT.startswith(out)
    assert len(out) > 1 << 16, "a pipe that was full was read on"
