"""What a client was about to ask and what it was told, on the disk before it goes on: kill -9 cannot make it forget.

A line is written before the queue is asked and another one after it has answered. So a job in the queue that no line
asked for was made up, and one that a line was told of and that is not there was lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct


class Request(Struct):
    """One enqueue: ``ids`` once it was acknowledged, ``refused`` once the client was told that nothing was written.

    Neither: nobody knows. Its jobs are all there or none is.
    """

    name: str
    count: int
    ids: list[int] | None = None
    refused: str | None = None

    @property
    def is_answered(self) -> bool:
        return self.ids is not None or self.refused is not None

    def tokens(self) -> list[str]:
        return [token(self.name, number) for number in range(self.count)]

    def acknowledged(self) -> list[tuple[int, str]]:
        """(id, token) of each job that the client was given an id for."""
        return [] if self.ids is None else list(zip(self.ids, self.tokens(), strict=True))


class Line(Struct, array_like=True):
    what: str  # ask, told, refused
    name: str
    count: int = 0
    ids: list[int] = []
    why: str = ""


def token(request: str, number: int) -> str:
    """The name of one job of a request, which its row carries as its batch."""
    return f"{request}.{number}"


class History:
    """One client's book."""

    def __init__(self, directory: Path, client: int) -> None:
        self._path = directory / f"history-{client}"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def ask(self, name: str, count: int) -> None:
        self._write(Line("ask", name, count))

    def told(self, name: str, ids: list[int]) -> None:
        self._write(Line("told", name, ids=ids))

    def refused(self, name: str, why: str) -> None:
        self._write(Line("refused", name, why=why))

    def requests(self) -> list[Request]:
        return list(read(self._path))

    def _write(self, line: Line) -> None:
        os.write(self._fd, msgspec.json.encode(line) + b"\n")
        os.fsync(self._fd)


def read(path: Path) -> Iterator[Request]:
    """The requests of one book, in order. A line that was cut off by a kill was not written."""
    found: dict[str, Request] = {}
    for text in path.read_bytes().split(b"\n")[:-1]:
        line = msgspec.json.decode(text, type=Line)
        if line.what == "ask":
            found.setdefault(line.name, Request(line.name, line.count))
        elif line.what == "told":
            found[line.name].ids = line.ids
        else:
            found[line.name].refused = line.why
    yield from found.values()


def read_all(directory: Path) -> list[Request]:
    return [request for path in sorted(directory.glob("history-*")) for request in read(path)]
