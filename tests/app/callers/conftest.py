"""An application's own connections, beside a queue in the same database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.kit.postgres import Given, Server

from .looks import Connection


@pytest.fixture
def url(postgres_queue: Callable[[], str]) -> str:
    return postgres_queue()


@pytest.fixture
def connect(server: Server | Given) -> Iterator[Callable[..., Connection]]:
    """A connection as an application has one: of its own, not in autocommit mode."""
    opened: list[Connection] = []

    def connect(**options: Any) -> Connection:
        opened.append(psycopg.connect(server.admin_url, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def conn(connect: Callable[..., Connection]) -> Connection:
    return connect()
