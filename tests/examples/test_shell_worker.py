"""The worker in plain shell: what its page promises, in every shell that is here, and nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from covey.core.view import JobView
from covey.engine.engine import Engine
from covey.open import open_engine
from covey.testing import until
from tests.kit import command
from tests.kit.lacking import need

from ..web.process import Running, running

SCRIPT = Path(__file__).parents[2] / "examples" / "http" / "worker.sh"
SHELLS = ("dash", "busybox", "bash")
NEEDED = ("curl", "jq", "setsid")
STOPS_S = 15  # a long poll takes twice as long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    need(*NEEDED)
    with running(tmp_path_factory.mktemp("server") / "queue.db") as server:
        yield server


@pytest.fixture
def engine(server: Running) -> Iterator[Engine]:
    engine = open_engine(str(server.db))
    yield engine
    engine.close()


class Shells:
    """Workers in one shell, and how to find whatever they have started."""

    def __init__(self, home: Path, shell: str) -> None:
        self.home, self.queue = home, f"q{os.urandom(4).hex()}"
        need(*NEEDED, shell)
        (home / "bin").mkdir()
        (home / "temp").mkdir()
        os.symlink(shutil.which(shell) or "", home / "bin" / "sh")  # the script's own `sh` is this one too
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, url: str, **environ: str) -> subprocess.Popen[bytes]:
        told = {
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
            "TMPDIR": str(self.home / "temp"),
            "COVEY_URL": url,
            "COVEY_LEASE": "9",
        }
        self.started.append(
            subprocess.Popen(
                [str(self.home / "bin" / "sh"), str(SCRIPT), self.queue],
                cwd=self.home,
                env={**os.environ, **told, **environ},
                stdin=subprocess.DEVNULL,
            )
        )
        return self.started[-1]

    def processes(self, *names: str) -> list[tuple[int, str]]:
        """(pid, name) of all that lives and was started by one of them."""
        found = []
        for each in psutil.process_iter():
            try:
                ours = each.environ().get("TMPDIR") == str(self.home / "temp")
                if ours and each.status() != psutil.STATUS_ZOMBIE and (not names or each.name() in names):
                    found.append((each.pid, each.name()))
            except psutil.Error:
                continue
        return found

    def end(self) -> None:
        """Each has ended when it was told to, and nothing of them is left."""
        for each in self.started:
            each.terminate()
        for each in self.started:
            assert each.wait(STOPS_S) == 0
        self.is_gone()

    def is_gone(self) -> None:
        until(lambda: not self.processes(), 10, f"nothing is left: {self.processes()}")
        assert os.listdir(self.home / "temp") == []


@pytest.fixture(params=SHELLS)
def shells(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shells]:
    shells = Shells(tmp_path, request.param)
    yield shells
    for pid, _ in shells.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in shells.started:
        process.wait(10)


def enqueue(engine: Engine, shells: Shells, line: str = "true", **fields: Any) -> int:
    return engine.enqueue([command(line, queue=shells.queue, **fields)])[0].id


def reaches(engine: Engine, job: int, *states: str) -> JobView:
    until(lambda: engine.job(job).state in states, 60, f"job {job} is {' or '.join(states)}")
    return engine.job(job)


def test_it_works_as_its_page_says(tmp_path: Path) -> None:
    need(*NEEDED)
    shells = Shells(tmp_path, "sh")
    engine = open_engine(str(tmp_path / "queue.db"))
    token = engine.create_token("w", "worker", queues=(shells.queue,))[1]
    (tmp_path / "token").write_text(f"{token}\n")
    try:
        with running(tmp_path / "queue.db", "--require-token") as server:
            shells.start(server.url, COVEY_TOKEN_FILE="token")  # from where it was started, whatever a job's place is
            words = engine.enqueue([_words(shells, "printf", "%s|", "a  b", "'*'")])[0].id
            bad = enqueue(engine, shells, "echo no >&2; exit 5", max_attempts=1)
            there = enqueue(engine, shells, "pwd; echo ${COVEY_TOKEN_FILE-unset}", cwd=str(tmp_path / "temp"))
            odd = enqueue(engine, shells, "printf '\\001ü\\n'")
            reaches(engine, odd, "completed")
            assert engine.history(words)[0].stdout == "a  b|'*'|"
            assert engine.history(there)[0].stdout == f"{tmp_path / 'temp'}\nunset\n"
            assert engine.history(odd)[0].stdout == "\x01ü\n"
            failed = engine.job(bad)
            assert (failed.state, failed.exit_code, failed.error) == ("dead", 5, "exit code 5")
            assert engine.history(bad)[0].stderr == "no\n"
            long = enqueue(engine, shells, "echo begun; sleep 600")
            reaches(engine, long, "processing")
            engine.cancel([long])
            until(lambda: engine.job(long).pool is None, 30)  # the next heartbeat told it
            assert engine.history(long)[0].stdout == "begun\n"
            until(lambda: engine.pool_views() == [], 10)  # its loan is over in the transaction after that
            shells.end()
    finally:
        engine.close()
        for each in shells.started:
            each.kill()
            each.wait()


def _words(shells: Shells, *argv: str) -> Any:
    from msgspec.json import encode
    from msgspec.structs import replace

    return replace(command(queue=shells.queue), args=encode({"argv": argv}).decode())


def test_many_short_jobs_and_no_worker_hangs(
    server: Running, engine: Engine, shells: Shells, proof: Callable[..., int]
) -> None:
    """A signal that reaches a shell which was just forked is lost with the trap that it inherited."""
    (shells.home / "bin" / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 60\n")  # one that is left is found
    (shells.home / "bin" / "sleep").chmod(0o755)
    jobs = [enqueue(engine, shells, "/bin/sleep 2") for _ in range(4)]  # so long that their keepers are up
    jobs += [enqueue(engine, shells) for _ in range(proof(30, 400))]
    for _ in range(proof(4, 6)):
        shells.start(server.url)
    until(lambda: all(engine.job(id).state == "completed" for id in jobs), proof(120, 900), "all have completed")
    assert {engine.job(id).attempts for id in jobs} == {1}
    # Between two jobs there is nothing but the workers and their questions: no keeper and no sleep of a job before.
    until(lambda: {name for _, name in shells.processes()} <= {"sh", "curl", *SHELLS}, 10)
    until(lambda: len(shells.processes("curl")) == len(shells.started), 20, "all of them ask")
    until(lambda: len(shells.processes()) == 2 * len(shells.started), 10, f"no more than that: {shells.processes()}")
    shells.end()
    until(lambda: engine.pool_views() == [], 10)


def test_an_idle_worker_that_is_told_to_stop_does_so_at_once(server: Running, engine: Engine, shells: Shells) -> None:
    shells.start(server.url)
    until(lambda: shells.processes("curl"), 20, "it asks for a job")
    shells.end()


def test_a_job_that_is_given_to_a_worker_that_stops_is_handed_back(
    tmp_path_factory: pytest.TempPathFactory, shells: Shells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_FAILPOINTS", "turn.after_commit=sleep:0.7")  # so long it takes to lend a job
    with running(tmp_path_factory.mktemp("slow") / "queue.db") as server:
        monkeypatch.delenv("COVEY_FAILPOINTS")
        engine = open_engine(str(server.db))
        try:
            worker = shells.start(server.url)
            until(lambda: shells.processes("curl"), 20, "it asks for a job")
            job = enqueue(engine, shells)
            reaches(engine, job, "processing")  # the answer is still to come
            worker.terminate()
            assert worker.wait(STOPS_S) == 0
            found = reaches(engine, job, "pending", "completed")  # told just too late, it has worked it
            assert found.attempts == (found.state == "completed")
            until(lambda: engine.pool_views() == [], 10)
            shells.is_gone()
        finally:
            engine.close()


def test_what_a_worker_runs_when_it_is_told_to_stop_is_ended_and_handed_back(
    server: Running, engine: Engine, shells: Shells
) -> None:
    job = enqueue(engine, shells, f"trap '' TERM; touch {shells.home}/on; sleep 600 & wait; wait", max_attempts=1)
    shells.start(server.url)
    until(lambda: (shells.home / "on").exists(), 30)
    shells.end()
    found = reaches(engine, job, "pending")
    assert (found.attempts, found.interruptions) == (0, 0)


def test_what_a_worker_runs_that_is_killed_is_ended_and_handed_back(
    server: Running, engine: Engine, shells: Shells
) -> None:
    job = enqueue(engine, shells, f"trap '' TERM; touch {shells.home}/on; sleep 600 & wait; wait", max_attempts=1)
    worker = shells.start(server.url)
    until(lambda: (shells.home / "on").exists() and len(shells.processes("sleep")) > 1, 30, "its keeper is up")
    worker.send_signal(signal.SIGKILL)  # and is a zombie: nobody has waited for it
    shells.is_gone()
    found = reaches(engine, job, "pending")
    assert (found.attempts, found.interruptions) == (0, 0)
    worker.wait()


def test_a_command_that_is_out_of_time_is_ended_by_its_worker(server: Running, engine: Engine, shells: Shells) -> None:
    job = enqueue(engine, shells, "trap '' TERM; echo begun; sleep 600 & wait; wait", max_attempts=1, timeout_s=1)
    shells.start(server.url, COVEY_LEASE="600")  # no heartbeat tells it
    found = reaches(engine, job, "dead")
    assert (found.error, found.attempts) == ("timed out after 1 s", 1)
    until(lambda: shells.processes("curl"), 60, "it asks for the next one")
    until(lambda: not shells.processes("sleep"), 10, "nothing of it runs on")
    shells.end()
