"""PostgreSQL when things go wrong: proxies that cut, servers that stop, writers that meet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine
from tests.kit.proxy import Proxy


@pytest.fixture
def url(postgres_queue: Callable[[], str]) -> str:
    """An empty queue on the server that all tests share."""
    return postgres_queue()


@pytest.fixture
def opened(url: str) -> Iterator[Callable[..., Engine]]:
    """Engines as the command line opens them, with the server's clock; closed after the test."""
    engines: list[Engine] = []

    def opened(other: str = url) -> Engine:
        engines.append(open_engine(other))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(opened: Callable[..., Engine]) -> Engine:
    return opened()


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def state_home(server: object) -> None:
    """The server's fixture has set a place for what queues keep on this host."""
    assert os.environ["XDG_STATE_HOME"]
