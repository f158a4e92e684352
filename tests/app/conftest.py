from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from covey import Covey
from covey.core.ports import Source
from covey.open import open_engine
from tests.kit import HandPool
from tests.kit.http_server import Served

from ..conftest import BACKENDS

# With full figures SQLite too: the contract says that it is the same.
DIRECTLY = BACKENDS if os.environ.get("COVEY_PROOF") == "full" else ["postgres"]


@pytest.fixture(params=[*DIRECTLY, "http"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the queue of this test lives: in one of the databases, or behind a server."""
    if backend != "http":
        if backend == "postgres":
            empty: Callable[[], str] = request.getfixturevalue("postgres_queue")
            yield empty()
        else:
            yield str(tmp_path / "queue.db") if backend == "file" else f"memory:{tmp_path.name}"
        return
    served = Served(lambda: open_engine(str(tmp_path / "queue.db")), socket=True)
    yield served.url
    served.close()


@pytest.fixture
def app(url: str) -> Iterator[Covey]:
    """An app on an empty queue: on a file, in memory, on PostgreSQL, behind a server."""
    with Covey(url) as app:
        yield app


@pytest.fixture
def worker(app: Covey) -> HandPool:
    """Claims and reports when the test says so."""
    return HandPool(cast(Source, app.client))
