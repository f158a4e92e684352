"""Servers for tests of the outer wall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .house import House, open_house


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A server that asks nobody for a token."""
    with open_house(tmp_path / "queue.db") as house:
        yield house


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[House]:
    """A server that lets nobody in without one."""
    with open_house(tmp_path / "queue.db", needs_token=True) as house:
        yield house
