"""The server that a supervisor's containers work through: the one that runs, or one of our own for the time being."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InvalidInput

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..pool.docker import Docker

PORT = 8765


class Reachable(NamedTuple):
    """A server, as containers reach it."""

    url: str
    token: str | None


@contextlib.contextmanager
def server_for_containers(
    engine: Engine, docker: Docker, *, server: str | None, token_file: str | None, port: int | None
) -> Iterator[Reachable]:
    """A server for the engine's database that containers can reach; one that was started for it ends with the block."""
    if server is None:
        raise InvalidInput("--executor needs --server URL: where a server for this database runs")
    yield Reachable(server, _read(token_file) if token_file else None)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            token = file.read().strip()
    except OSError as error:
        raise InvalidInput(f"--token-file {path}: {error.strerror}") from None
    if not token:
        raise InvalidInput(f"--token-file {path}: it is empty")
    return token
