"""The contract is the same over HTTP: every test runs once more against a server, asked directly and over a socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from zlib import crc32

import pytest

from covey import env
from covey.engine.engine import Engine
from covey.open import open_dialect
from covey.remote.remote import Remote
from covey.store import migrate
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit.http_server import Served

from ..conftest import BACKENDS

# How it is asked and what is behind it: with full figures all four, else one for each module, drawn by its name.
EVERY_WAY = ["http-file", "http-postgres", "socket-file", "socket-postgres"]


def served(module: str) -> list[str]:
    if os.environ.get("COVEY_PROOF") == "full":
        return EVERY_WAY
    return [EVERY_WAY[crc32(module.encode()) % len(EVERY_WAY)]]


class RemoteEngine(Remote):
    """A Remote for tests that also look behind the server: whatever is no verb of the wire is asked of the database."""

    behind: Engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["behind"], name)


# With full figures the database in memory too: it is the same dialect as the file's, without its bell and gate.
DIRECTLY = BACKENDS if os.environ.get("COVEY_PROOF") == "full" else ["file", "postgres"]
ONLY = os.environ.get("COVEY_TEST_BACKENDS")  # a test that runs part of this suite has its own choice


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module with BEHIND is about verbs that a server uses itself and offers nobody: those have no way over HTTP."""
    if "backend" in metafunc.fixturenames:
        ways = [] if getattr(metafunc.module, "BEHIND", False) else served(metafunc.module.__name__)
        metafunc.parametrize("backend", ONLY.split(",") if ONLY else [*DIRECTLY, *ways], indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(backend: str, url: str, clock: FakeClock) -> Iterator[Callable[[], Engine]]:
    """Opens the test's queue once more, as another client or pool would."""
    from random import Random

    def open() -> Engine:
        dialect = open_dialect(url)
        migrate.migrate(dialect, database_id=env.new_database_id(), now=clock())
        store = Store(dialect)
        store.plan()
        return Engine(store, clock=clock, rng=Random(0))

    with ExitStack() as stack:
        if backend in BACKENDS:

            def connect() -> Engine:
                engine = open()
                stack.callback(engine.close)
                return engine

        else:
            behind = open()
            stack.callback(behind.close)
            served = Served(open, socket=backend.startswith("socket"))
            stack.callback(served.close)

            def connect() -> Engine:
                remote = served.connect()
                remote.__class__ = RemoteEngine
                remote.__dict__["behind"] = behind
                stack.callback(remote.close)
                return remote  # type: ignore[return-value]

        yield connect
