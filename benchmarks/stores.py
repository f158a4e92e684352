"""What a family of queues stands on: a directory, a Redis or a PostgreSQL server of the run's own. Empty every time."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
from tests.kit.postgres import Server

from . import environments, ground
from .peers import trace

REDIS = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2")


@dataclass(frozen=True)
class Given:
    """Where one measure takes place. ``servers``: the pids of the server's processes, now."""

    place: Path
    url: str = ""
    server: int | None = None

    def servers(self) -> list[int]:
        if self.server is None:
            return []
        return [self.server, *(child.pid for child in psutil.Process(self.server).children(recursive=True))]


class Store(Protocol):
    about: str

    def fresh(self) -> contextlib.AbstractContextManager[Given]: ...


class Files:
    """A directory on the project's disk."""

    about = "a file on the project's disk"

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Given]:
        with ground.scratch() as place:
            trace.prepare(str(place))
            yield Given(place)


class Redis:
    """A server for each measure: the log of the one before must not be rewritten during the next."""

    def __init__(self) -> None:
        self.program, self.env = environments.program("redis-server", REDIS)
        said = subprocess.run([self.program, "--version"], env=self.env, capture_output=True, text=True).stdout
        version = next((word[2:] for word in said.split() if word.startswith("v=")), "?")
        self.about = f"Redis {version}, appendonly everysec, loopback"

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Given]:
        with ground.scratch() as place:
            trace.prepare(str(place))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            settings = {"port": port, "bind": "127.0.0.1", "dir": place, "save": "", "appendonly": "yes",
                        "appendfsync": "everysec", "daemonize": "no", "loglevel": "warning"}  # fmt: skip
            words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
            with open(place / "redis.log", "wb") as log:
                server = subprocess.Popen([self.program, *words], env=self.env, stdout=log, stderr=log)
            try:
                _until_open(port, place / "redis.log")
                yield Given(place, f"redis://127.0.0.1:{port}/0", server.pid)
            finally:
                server.kill()
                server.wait()


def _until_open(port: int, log: Path) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise environments.Missing(f"redis-server did not start: {log.read_text()[-300:]}")


class Postgres:
    """One server with its defaults, a database for each measure. All reach it by the same socket."""

    def __init__(self) -> None:
        try:
            self._server = Server(fast=False)
        except AssertionError as problem:
            raise environments.Missing(str(problem).splitlines()[0]) from problem
        self._numbers = itertools.count()
        with self._server.admin() as db:
            version = db.execute("show server_version").fetchone() or ("?",)
        self.about = f"PostgreSQL {version[0]}, defaults (fsync and synchronous_commit on), a Unix socket"

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Given]:
        name = f"bench{next(self._numbers)}"
        with self._server.admin() as db:
            db.execute(f"create database {name}".encode())
            db.execute("checkpoint")
        url = f"postgresql://covey@/{name}?host={self._server.directory}&port={self._server.port}"
        pid = int(Path(self._server.data, "postmaster.pid").read_text().split()[0])
        with ground.scratch() as place:
            trace.prepare(str(place))
            try:
                yield Given(place, url, pid)
            finally:
                with self._server.admin() as db:
                    db.execute(f"drop database {name} with (force)".encode())

    def close(self) -> None:
        self._server.close()


@contextlib.contextmanager
def opened(family: str) -> Iterator[Store]:
    if family == "postgres":
        server = Postgres()
        try:
            yield server
        finally:
            server.close()
    else:
        yield Redis() if family == "redis" else Files()
