"""When a pool that cannot be seen is given up."""

from __future__ import annotations

import pytest

from covey.core.model import LostPool
from covey.log import Log
from covey.pool import neighbours
from covey.pool.neighbours import Neighbours

LEASE_S = 30.0


class Elsewhere:
    """A queue with one pool of another host, which has beaten once."""

    database_id = "d"

    def __init__(self) -> None:
        self.beat = 1
        self.away = False
        self.reaped: list[int] = []

    def pools(self) -> list[LostPool]:
        if self.away:
            raise OSError("away")
        return [LostPool(7, "elsewhere", "another:1", 1, 1, self.beat, LEASE_S, None)]

    def orphaned_pools(self) -> list[int]:
        return []

    def reap(self, pool: int, beat: int) -> int:
        self.reaped.append(pool)
        return 0


class Watch:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(neighbours.time, "monotonic", lambda: self.now)
        self.source = Elsewhere()
        self.watcher = Neighbours(self.source, "d", Log("test", quiet=True))  # type: ignore[arg-type]

    def looks(self, seconds: float) -> list[int]:
        """Twice a second for that long; who was given up so far."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.watcher.look(me=1)
        return self.source.reaped


def test_a_pool_that_is_silent_for_a_lease_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    assert watch.looks(LEASE_S) == []
    assert watch.looks(2) == [7]


def test_a_pool_that_beats_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    for _ in range(5):
        watch.source.beat += 1
        assert watch.looks(LEASE_S - 1) == []


def test_an_outage_of_the_store_longer_than_the_lease_is_nobody_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.looks(5)
    watch.source.away = True
    for _ in range(100):
        watch.now += 1
        with pytest.raises(OSError, match="away"):
            watch.watcher.look(me=1)
    watch.source.away = False
    assert watch.looks(5) == []
    watch.source.beat += 1
    assert watch.looks(LEASE_S) == []
    assert watch.looks(2) == [7]


def test_nor_is_a_long_sleep_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.looks(5)
    watch.now += 1000
    assert watch.looks(5) == []
