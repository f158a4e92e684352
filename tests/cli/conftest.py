"""The real executable, on a queue of the test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from covey.core.turn import PoolInfo, WorkerState
from covey.core.view import JobView
from covey.engine.engine import Engine
from covey.env import boot, hostname, start_ticks
from covey.errors import StoreError
from covey.open import open_engine
from covey.testing.until import until as patiently
from tests.kit.factories import pool_info
from tests.kit.postgres import Given, Schema, Server

from .forge import Forge

LIMIT_S = 60.0
STARTED = ("worker start", "run", "server", "demo", "db copy")


class Answer:
    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def ids(self) -> list[int]:
        return [int(line) for line in self.out.split()]

    def __repr__(self) -> str:
        return f"exit {self.code}\nout: {self.out}\nerr: {self.err}"


class CommandLine:
    """`covey` in a directory of its own, with a queue of its own."""

    def __init__(self, directory: Path, forge: Forge | None = None) -> None:
        self._forge = forge
        self.directory = directory
        self.db = directory / "queue.db"
        known = {
            name: os.environ[name]
            for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "TMPDIR")
            if name in os.environ
        }
        self.env = {**known, "HOME": str(directory), "COVEY_DB": str(self.db), "COVEY_DEBUG": "1"}
        self._pools: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def _is_started(line: str) -> bool:
        """What runs for long is started as people start it, its help is not."""
        return line.startswith(STARTED) and not line.endswith("--help")

    def __call__(self, *words: str | bytes, stdin: bytes = b"", env: dict[str, str | None] | None = None) -> Answer:
        plain = [word for word in words if isinstance(word, str)]
        told = any(name.startswith(("COVEY", "PYTHON", "TZ", "LC_", "LANG")) for name in env or ())
        if self._forge and not told and len(plain) == len(words) and not self._is_started(" ".join(plain)):
            return Answer(self._forge.run(plain, self.directory, self.environment(env), stdin, LIMIT_S))
        return Answer(
            subprocess.run(
                [sys.executable, "-m", "covey", *words],
                input=stdin,
                capture_output=True,
                cwd=self.directory,
                env=self.environment(env),
                timeout=LIMIT_S,
                check=False,
            )
        )

    def environment(self, changes: dict[str, str | None] | None) -> dict[str, str]:
        merged: dict[str, str | None] = {**self.env, **(changes or {})}
        return {name: value for name, value in merged.items() if value is not None}

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(
            [sys.executable, "-m", "covey", *words],
            cwd=self.directory,
            env=self.environment(None),
            stdin=subprocess.DEVNULL,
            bufsize=0,  # so that a readline takes no more than its line
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        self._pools.append(started)
        return started

    def pool(self, *words: str) -> subprocess.Popen[bytes]:
        """A running pool that is registered."""
        log = open(self.directory / "pool.log", "ab")  # noqa: SIM115
        started = self.popen("worker", "start", *(words or ("--count", "2")), stdout=log, stderr=log)
        log.close()
        until(lambda: started.pid in self.pids())
        return started

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The queue seen from the test, without the cost of a process."""
        engine = open_engine(str(self.db), create=False)
        try:
            yield engine
        finally:
            engine.close()

    def pids(self) -> list[int]:
        """The pids of the pools that are registered."""
        try:
            with self.engine() as engine:
                return [pool.pid for pool in engine.pool_views()]
        except StoreError:  # not there yet
            return []

    def count(self) -> int:
        """How many jobs there are, 0 where there is no queue."""
        if not self.db.exists():
            return 0
        with self.engine() as engine:
            return sum(engine.status().counts.values())

    def view(self, ref: str | int) -> JobView:
        with self.engine() as engine:
            return engine.job(ref)

    def state(self, ref: str | int) -> str:
        return self.view(ref).state

    def stop(self) -> None:
        for process in self._pools:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._pools:
            try:
                process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def until(true: Callable[[], object], limit_s: float = 20.0) -> None:
    """``true()`` has become true; the test fails if that takes too long."""
    patiently(true, limit_s)


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    forge = Forge()
    yield forge
    forge.close()


@pytest.fixture
def covey(tmp_path: Path, forge: Forge) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path, forge)
    yield line
    line.stop()


@pytest.fixture
def engine(covey: CommandLine) -> Iterator[Engine]:  # type: ignore[override]
    """The test's own connection to the queue of its command line."""
    opened = open_engine(str(covey.db))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def schemas(server: Server | Given) -> list[Schema]:
    return [Schema(server, f"copy_{name}_{os.getpid()}") for name in ("from", "to")]


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Where an empty queue may be: the first one asked for, then the second."""
    asked: list[str] = []

    def place(kind: str) -> str:
        asked.append(kind)
        if kind == "sqlite":
            return str(tmp_path / f"{len(asked)}.db")
        schemas: list[Schema] = request.getfixturevalue("schemas")
        return schemas[len(asked) - 1].emptied()

    return place


def here(**fields: Any) -> PoolInfo:
    """A pool whose process is this test."""
    mine = {
        "host": hostname(),
        "boot": boot(),
        "pid": os.getpid(),
        "ticks": start_ticks(os.getpid()),
        "lease_s": 3600.0,
    }
    return pool_info(**{**mine, **fields})


def lost(**fields: Any) -> PoolInfo:
    """A pool of this host whose process is gone: the pid is another's by now."""
    return here(ticks=1, **fields)


def worker(name: str, kind: Any = "command", state: Any = "idle", **fields: Any) -> WorkerState:
    return WorkerState(name, kind, state, 4321, 1, 1_000_000, **fields)
