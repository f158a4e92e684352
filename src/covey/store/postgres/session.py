"""A session that has something else to do while the server works."""

from __future__ import annotations

import select
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg import waiting

T = TypeVar("T")


class Session(psycopg.Connection[tuple[Any, ...]]):
    meanwhile: Callable[[], float | None] | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        return super().wait(
            _interposed(gen, self.fileno(), self.meanwhile) if self.meanwhile else gen, *args, **options
        )


def _interposed(steps: Generator[Any, Any, T], fd: int, work: Callable[[], float | None]) -> Generator[Any, Any, T]:
    """The same steps, with that work done once everything is sent: piece by piece, until the answer is there.

    After each piece it says for how long the next one can wait; None if there is none.
    """
    try:
        wanted = next(steps)
        while wanted != waiting.WAIT_R:
            wanted = steps.send((yield wanted))
        answer = select.poll()
        answer.register(fd, select.POLLIN)
        while (pause_s := work()) is not None and not answer.poll(pause_s * 1000):
            pass
        while True:
            wanted = steps.send((yield wanted))
    except StopIteration as end:
        found: T = end.value
        return found
