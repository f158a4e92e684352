"""When the workers of a pool are shown, by a clock that the test has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from covey.log import Log
from covey.pool.roster import BEAT_S, SOON_S, Roster
from covey.pool.worker_process import WorkerProcess
from covey.pool.workers import Workers


class Shown(list[Any]):
    def __call__(self, roster: list[Any], given_up: dict[str, str], *, wakes: bool) -> None:
        self.append((roster[0].done, roster[0].failed, wakes))


@pytest.fixture
def workers() -> Iterator[Workers]:
    """One worker that stands ready."""
    workers = Workers(Log("pool"), lambda *_: None, limit=1, concurrency=1)
    worker = WorkerProcess("sync-1", "", "sync", 1)
    worker.sent()
    worker.state = "ready"
    workers.by_name["sync-1"], workers.groups["", "sync"] = worker, [worker]
    yield workers
    workers.forget(worker)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], float]:
    """Sets the clock that is looked at."""
    return lambda now: monkeypatch.setattr("covey.pool.roster.time.monotonic", lambda: now) or now


def test_what_a_worker_has_done_is_shown_within_half_a_second_and_then_no_more(workers: Workers) -> None:
    shown = Shown()
    roster = Roster(workers, shown)
    roster.tell(100.0)
    workers.by_name["sync-1"].done += 1
    roster.tell(100.1)
    assert shown == [(0, 0, True)]
    assert roster.wake_at(100.1) == 100.0 + SOON_S
    roster.tell(100.0 + SOON_S)
    assert shown[1:] == [(1, 0, True)]
    workers.by_name["sync-1"].done += 1
    workers.by_name["sync-1"].failed += 1
    roster.tell(101.1)
    assert shown[2:] == [(2, 1, True)]
    roster.tell(101.7)
    assert len(shown) == 3
    assert roster.wake_at(101.7) == 100.0 + BEAT_S  # an idle pool sleeps until the beat, and writes nothing before it


def test_it_travels_with_reports_at_most_twice_a_second(workers: Workers, at: Callable[[float], float]) -> None:
    shown = Shown()
    roster = Roster(workers, shown)
    roster.tell(at(100.0))
    for tick in range(1, 40):
        at(100.0 + tick / 10)
        workers.by_name["sync-1"].done += 1
        roster.tell_with_reports()
    assert [done for done, _, wakes in shown if not wakes] == [5, 10, 15, 20, 25, 30, 35]
