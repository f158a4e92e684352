"""The store tests are about files and processes: a path, and programs that run beside the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


@pytest.fixture
def opened() -> Iterator[Callable[[str], Engine]]:
    """Engines as the command line opens them, closed after the test."""
    engines: list[Engine] = []

    def opened(path: str) -> Engine:
        engines.append(open_engine(path))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


@pytest.fixture
def real(path: str, opened: Callable[[str], Engine]) -> Engine:
    """An engine on a file, with the clock and the dice of the world."""
    return opened(path)
