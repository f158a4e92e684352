"""A server in this process, on a socket, before a database of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from tools.torture.audit import AUDIT

from covey.engine.engine import Engine
from covey.open import open_engine
from covey.remote.remote import Remote
from tests.kit.http_server import Served

from .cutting import Cutting

# A file, in `make proof` PostgreSQL as well; where the two differ most, both always.
BOTH = pytest.mark.parametrize("backend", ["file", "postgres"], indirect=True)


@pytest.fixture(params=["file", "postgres"] if os.environ.get("COVEY_PROOF") == "full" else ["file"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """The database behind the server, with real time, opened by somebody else; it keeps a log of what jobs do."""
    engine = open_engine(url)
    with engine.store.transaction():
        engine.store.dialect.script(AUDIT[engine.store.dialect.name])
    yield engine
    if engine.store.dialect.name == "postgres":  # the schema serves the next test too
        with engine.store.transaction():
            engine.store.dialect.script(
                "drop function {audit_change} cascade; drop function {audit_removal} cascade; drop table {audit};"
            )
    engine.close()


@pytest.fixture
def served(engine: Engine, url: str) -> Iterator[Served]:
    served = Served(lambda: open_engine(url), socket=True)
    yield served
    served.close()


@pytest.fixture
def cutting(served: Served) -> Iterator[Cutting]:
    with Cutting(served.url) as cutting:
        yield cutting


@pytest.fixture
def connect(served: Served) -> Iterator[Callable[[], Remote]]:
    """One more client of the server."""
    remotes: list[Remote] = []

    def connect() -> Remote:
        remotes.append(Remote(served.url))
        return remotes[-1]

    yield connect
    for remote in remotes:
        remote.close()


@pytest.fixture
def remote(cutting: Cutting) -> Iterator[Remote]:
    """A client whose answers may get lost."""
    remote = Remote(cutting.url)
    yield remote
    remote.close()


def times(engine: Engine, job: int, state: str) -> int:
    """How often the job came to be in that state."""
    rows = engine.store.raw("select job, state from {audit}")
    return sum((each, now) == (job, state) for each, now in rows)
