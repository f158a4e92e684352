"""When a pool of another host counts as lost."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from covey.engine.engine import Engine
from covey.env import boot, hostname, start_ticks
from covey.errors import StoreError
from covey.log import Log
from covey.pool import reaper
from covey.pool.reaper import MISSED, Reaper
from covey.system import cgroup
from tests.kit import HandPool, command
from tests.kit.factories import pool_info

LEASE_S = 30.0


class Ticker:
    """A monotonic clock that moves when told."""

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


def far(engine: Engine) -> HandPool:
    return HandPool(engine, pool_info("far", host="far", boot="another:1", lease_s=LEASE_S))


def watch(watcher: Reaper, ticker: Ticker, seconds: float) -> None:
    for _ in range(int(seconds * 2)):
        ticker.now += 0.5
        watcher.look(me=None)


def test_a_pool_is_lost_once_its_beat_was_seen_to_stand_still_for_a_lease(
    engine: Engine, watcher: Reaper, ticker: Ticker
) -> None:
    far(engine)
    watcher.look(me=None)
    watch(watcher, ticker, LEASE_S)
    assert len(engine.pools()) == 1
    watch(watcher, ticker, 1)
    assert engine.pools() == []


def named_like_us(engine: Engine) -> HandPool:
    return HandPool(engine, pool_info("twin", host=hostname(), boot="another:1", lease_s=LEASE_S))


def test_a_pool_from_before_a_restart_of_this_host_is_lost_after_a_few_beats(
    engine: Engine, watcher: Reaper, ticker: Ticker
) -> None:
    beat_s = engine.settings()["heartbeat_seconds"]
    named_like_us(engine)
    watcher.look(me=None)
    watch(watcher, ticker, MISSED * beat_s)
    assert len(engine.pools()) == 1
    watch(watcher, ticker, 1)
    assert engine.pools() == []


def test_another_machine_with_our_host_name_is_not_given_up_while_it_beats(
    engine: Engine, watcher: Reaper, ticker: Ticker
) -> None:
    twin = named_like_us(engine)
    engine.enqueue([command()])
    claim = twin.claim_one()
    watcher.look(me=None)
    for _ in range(20):
        watch(watcher, ticker, engine.settings()["heartbeat_seconds"])
        assert not twin.beat(claim).lost
    assert engine.job(claim.id).interruptions == 0


def test_after_an_outage_of_the_store_the_others_have_time_to_beat_again(
    engine: Engine, watcher: Reaper, ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could beat meanwhile: the first pool that is back must not give up all the rest."""
    other = far(engine)
    watcher.look(me=None)
    watch(watcher, ticker, 5)
    with monkeypatch.context() as patch:

        def away() -> None:
            raise StoreError("the server is away")

        patch.setattr(engine, "pools", away)
        for _ in range(20):
            ticker.now += LEASE_S
            with pytest.raises(StoreError):
                watcher.look(me=None)
    watch(watcher, ticker, 10)
    other.beat()
    watch(watcher, ticker, LEASE_S)
    assert len(engine.pools()) == 1
    watch(watcher, ticker, LEASE_S)
    assert engine.pools() == []


def test_a_pool_s_double_that_never_spoke_does_not_take_its_group_along(
    engine: Engine, watcher: Reaper, ticker: Ticker, tmp_path: Path
) -> None:
    """Its first registration was written down and the answer lost: the same process is in the books twice."""
    ticks = start_ticks(os.getpid()) or 0
    group = tmp_path / cgroup.name(engine.database_id, os.getpid(), ticks)
    group.mkdir()
    killed = group / "cgroup.kill"  # what is written to end a group
    me = pool_info(host=hostname(), boot=boot(), pid=os.getpid(), ticks=ticks, lease_s=LEASE_S, cgroup=str(group))
    engine.register(me)
    watcher.look(me=None)
    watch(watcher, ticker, LEASE_S + 1)
    assert (engine.pools(), killed.exists()) == ([], False)  # nothing but the double was there
    double, living = engine.register(me).pool, HandPool(engine, me)
    engine.beat([double])  # even if it was heard once
    living.beat()
    watcher.look(me=None)
    for _ in range(4):
        watch(watcher, ticker, LEASE_S / 2)
        living.beat()
    assert ([pool.id for pool in engine.pools()], killed.exists()) == ([living.id], False)
    watch(
        watcher, ticker, LEASE_S + 1
    )  # the pool itself is frozen: its jobs go elsewhere, so its processes must not live
    assert (engine.pools(), killed.exists()) == ([], True)
