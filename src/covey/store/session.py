"""A session that has something else to do while the server works."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg import waiting

T = TypeVar("T")


class Session(psycopg.Connection[tuple[Any, ...]]):
    meanwhile: Callable[[], None] | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        return super().wait(_interposed(gen, self.meanwhile) if self.meanwhile else gen, *args, **options)


def _interposed(steps: Generator[Any, Any, T], work: Callable[[], None]) -> Generator[Any, Any, T]:
    """The same steps, with that work done once everything is sent and only the answer is waited for."""
    try:
        wanted = next(steps)
        while wanted != waiting.WAIT_R:
            wanted = steps.send((yield wanted))
        work()
        while True:
            wanted = steps.send((yield wanted))
    except StopIteration as end:
        found: T = end.value
        return found
