"""Real pools. Each test leaves no process behind: the yard looks for them when it closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.testing.pools import RunningPool, Yard

HERE = Path(__file__).parent
APP = "zoo:app"


@pytest.fixture
def make_yard(tmp_path: Path) -> Iterator[Callable[..., Yard]]:
    """Makes a queue with these settings; several have nothing to do with each other."""
    yards: list[Yard] = []

    def make(**settings: object) -> Yard:
        home = tmp_path / f"yard-{len(yards)}"
        home.mkdir()
        yards.append(Yard(home, app=APP, path=[HERE], **settings))
        return yards[-1]

    yield make
    for yard in yards:
        yard.close()


@pytest.fixture
def yard(make_yard: Callable[..., Yard]) -> Yard:
    """A queue of its own, with the tasks of zoo.py and no pool yet."""
    return make_yard()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """One queue with one pool of two workers for all tests of a file that do the pool no harm."""
    with Yard(tmp_path_factory.mktemp("shared"), app=APP, path=[HERE]) as yard:
        yard.pool(count=2).started()
        yard.ends(yard.shell("true"), within_s=20)
        yield yard


@pytest.fixture
def busy(shared: Yard) -> Iterator[Yard]:
    """The shared queue; the test's jobs leave nothing running."""
    before = set(shared.leftovers())
    yield shared
    left = [pid for pid in shared.leftovers() if pid not in before]
    assert not left, f"processes were left behind: {left}"


@pytest.fixture
def the_pool(shared: Yard) -> RunningPool:
    return shared.pools[0]
