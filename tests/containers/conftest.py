"""Supervisors with the fake engine. Each test leaves no container and no process behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.testing.pools import Yard
from covey.worker import family

from .dock import Dock


@pytest.fixture
def dock(tmp_path: Path) -> Iterator[Dock]:
    # Containers outlive a supervisor that was killed, and this process would inherit them otherwise.
    assert os.getpid() != 1
    with Yard(tmp_path) as yard:
        made = Dock(yard)
        yield made
        for pool in yard.pools:
            if pool.process.poll() is None:
                pool.stop()
        left = made.close()
        family.kill_marked(yard.mark)
    assert not left, f"containers were left: {left}"
