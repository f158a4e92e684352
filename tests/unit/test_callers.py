"""When the caller of a job counts as gone, for whoever watches from elsewhere and for whoever sees its process."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

from covey.core.turn import Caller
from covey.engine.engine import Engine
from covey.env import boot, hostname, start_ticks
from covey.errors import StoreError
from covey.log import Log
from covey.pool import reaper
from covey.pool.reaper import Reaper
from tests.kit import HandPool, command

LEASE_S = 30.0
FAR = Caller(host="far", boot="another:1", pid=os.getpid(), ticks=1, lease_s=LEASE_S)


class Ticker:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def backend() -> str:
    return "memory"


@pytest.fixture
def ticker(monkeypatch: pytest.MonkeyPatch) -> Ticker:
    ticker = Ticker()
    monkeypatch.setattr(reaper, "time", SimpleNamespace(monotonic=ticker.monotonic))
    return ticker


@pytest.fixture
def watcher(engine: Engine) -> Reaper:
    return Reaper(engine, engine.database_id, Log("watcher", quiet=True))


def tied(engine: Engine, caller: Caller) -> int:
    (made,) = engine.enqueue([command()], caller=caller)
    return made.id


def watch(watcher: Reaper, ticker: Ticker, seconds: float) -> None:
    for _ in range(int(seconds * 2)):
        ticker.now += 0.5
        watcher.look(me=None)


def test_a_caller_elsewhere_is_gone_once_its_beat_stood_still_for_a_lease(
    engine: Engine, watcher: Reaper, ticker: Ticker
) -> None:
    job = tied(engine, FAR)
    watcher.look(me=None)
    watch(watcher, ticker, LEASE_S)
    assert engine.job(job).state == "pending"
    watch(watcher, ticker, 1)
    assert engine.job(job).state == "cancelled"
    assert engine.callers() == []


def test_a_caller_elsewhere_that_was_stopped_for_less_than_its_lease_keeps_its_job(
    engine: Engine, watcher: Reaper, ticker: Ticker
) -> None:
    job = tied(engine, FAR)
    watcher.look(me=None)
    for seconds in (5, 29, 5, 28):
        watch(watcher, ticker, seconds)
        assert engine.still_here(job)
    watch(watcher, ticker, 29)
    assert engine.job(job).state == "pending"


def test_after_an_outage_of_the_store_a_caller_has_time_to_beat_again(
    engine: Engine, watcher: Reaper, ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tied(engine, FAR)
    watcher.look(me=None)
    with monkeypatch.context() as patch:

        def away() -> None:
            raise StoreError("the server is away")

        patch.setattr(engine, "pools", away)
        for _ in range(20):
            ticker.now += LEASE_S
            with pytest.raises(StoreError):
                watcher.look(me=None)
    watch(watcher, ticker, 10)
    assert engine.job(job).state == "pending"


def here(pid: int) -> Caller:
    return Caller(host=hostname(), boot=boot(), pid=pid, ticks=start_ticks(pid) or 0, lease_s=LEASE_S)


def test_a_caller_of_this_host_lives_as_long_as_its_process_whatever_its_beat(
    engine: Engine, watcher: Reaper, ticker: Ticker
) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        job = tied(engine, here(process.pid))
        watch(watcher, ticker, 3 * LEASE_S)
        assert engine.job(job).state == "pending"
    finally:
        process.kill()
        process.wait()
    ticker.now += 0.5
    watcher.look(me=None)
    assert engine.job(job).state == "cancelled"


def test_the_first_look_of_a_pool_cancels_what_a_dead_caller_of_this_host_has_left(
    engine: Engine, watcher: Reaper
) -> None:
    """Before the pool claims anything."""
    gone = Caller(host=hostname(), boot=boot(), pid=os.getpid(), ticks=1, lease_s=LEASE_S)
    job, other = tied(engine, gone), tied(engine, here(os.getpid()))
    watcher.look(me=None, force=True)
    assert [engine.job(id).state for id in (job, other)] == ["cancelled", "pending"]


def test_ties_of_jobs_that_have_ended_are_forgotten_without_a_word(engine: Engine, watcher: Reaper) -> None:
    job = tied(engine, here(os.getpid()))
    pool = HandPool(engine)
    pool.succeed(pool.claim_one())
    watcher.look(me=None, force=True)
    assert engine.callers() == []
    assert [event.kind for event in engine.events(job)] == []


def test_a_lost_pool_s_job_whose_caller_is_gone_too_is_not_handed_back(engine: Engine, watcher: Reaper) -> None:
    gone = {"host": hostname(), "boot": boot(), "pid": os.getpid(), "ticks": 1}
    job = tied(engine, Caller(**gone, lease_s=LEASE_S))  # type: ignore[arg-type]
    HandPool(engine, **gone).claim_one()
    watcher.look(me=None, force=True)
    view = engine.job(job)
    assert (view.state, view.pool) == ("cancelled", None)
