"""Real pools behind a real server: outages, kills, silence, and company of pools that have the database open."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine
from covey.remote.remote import Remote
from covey.testing import until
from tests.kit import HandPool, pool_info
from tests.kit.hosts import Network, need_hosts
from tests.kit.http_server import Served
from tests.kit.running import Watch, Yard

LEASE_S, BEAT_S = 2.0, 0.5
# Says who it is, goes on until it may end, says so again.
STAY = "echo $COVEY_RUN >>began; while ! test -e go; do sleep 0.05; done; echo $COVEY_RUN >>ended; echo $COVEY_RUN"


@pytest.fixture
def backend() -> str:
    return "file"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Yard]]:
    yards: list[Yard] = []

    def make(**settings: object) -> Yard:
        yards.append(Yard(tmp_path, **settings))
        return yards[-1]

    yield make
    for yard in yards:
        yard.close()


def test_a_pool_outlives_an_outage_says_so_seldom_and_delivers_what_it_ran_meanwhile(
    make: Callable[..., Yard], proof: Callable[[float, float], float]
) -> None:
    yard = make()
    server = yard.serve()
    pool = yard.pool(count=1).started()
    job = yard.shell(STAY, max_attempts=1)
    (run,) = yard.trace("began")
    server.kill()
    (yard.home / "go").touch()
    yard.trace("ended")
    watch = Watch()
    until(lambda: watch.s > proof(2, 60), 100)
    server.again().started()
    yard.completes(job, within_s=10)
    assert yard.attempt(job).stdout == f"{run}\n"
    said = [line for line in pool.said().splitlines() if "cannot be used" in line]
    assert 1 <= len(said) <= 1 + watch.s / 5
    assert until(lambda: "can be used again" in pool.said(), 5)
    assert (yard.job(job).attempts, pool.process.poll(), len(yard.engine.pools())) == (1, None, 1)


def test_a_result_that_comes_after_the_pool_was_given_up_is_refused_and_the_pool_goes_on(
    make: Callable[..., Yard],
) -> None:
    """Silent with its connection open: only what it says itself counts, not that somebody holds the line."""
    yard = make(heartbeat_seconds=BEAT_S, lock_lease_seconds=LEASE_S)
    yard.serve()
    stopped = yard.pool(count=1).started()
    job = yard.shell(STAY)
    (first,) = yard.trace("began")
    other = yard.pool("--name", "other", count=1).started()
    stopped.send(signal.SIGSTOP)
    watch = Watch()
    yard.trace("began", 2, within_s=LEASE_S + 4)
    assert watch.within(LEASE_S + 2)
    (yard.home / "go").touch()
    (view,) = yard.completes(job)
    assert yard.attempt(job).stdout != f"{first}\n"
    stopped.send(signal.SIGCONT)
    until(lambda: "was given up by the others" in stopped.said(), 10, "it is told")
    assert stopped.process.poll() is None
    assert (view.attempts, view.interruptions) == (1, 1)
    other.stop()
    yard.completes(yard.shell("true"))  # it works under a new name


def test_pools_here_and_behind_the_server_share_a_queue(make: Callable[..., Yard]) -> None:
    """One order, one set of books, and whoever is killed on this host is recovered at once, not after its lease."""
    yard = make()
    yard.serve()
    pools = {
        "remote": yard.pool("--name", "remote", count=1).started(),
        "local": yard.pool("--name", "local", "--no-reuse", url=yard.db, count=1).started(),
    }
    yard.engine.set_queue("line", serial=True)
    line = yard.shells(["echo $COVEY_JOB_ID >>order"] * 12, queue="line")
    yard.completes(*line)
    assert yard.traces("order") == [str(id) for id in line]
    both = yard.shells(["echo $COVEY_RUN >>began; while ! test -e go; do sleep 0.02; done"] * 2)
    runs = yard.trace("began", 2)
    assert {int(run.split(":")[1]) for run in runs} == {pool.id for pool in pools.values()}
    told = json.loads(yard.run("worker", "list", "--json").stdout)
    assert sorted(pool["name"] for pool in told) == ["local", "remote"]
    pools["remote"].kill()
    watch = Watch()
    until(lambda: len(yard.engine.pools()) == 1, 5, "the killed one is struck off")
    assert watch.within(2.5)
    (yard.home / "go").touch()
    views = yard.completes(*both)
    assert sorted((view.attempts, view.interruptions) for view in views) == [(1, 0), (1, 1)]


def test_a_pool_on_another_host_is_recovered_within_its_lease(make: Callable[..., Yard]) -> None:
    need_hosts()
    yard = make(heartbeat_seconds=BEAT_S, lock_lease_seconds=LEASE_S)
    _, text = yard.engine.create_token("worker", "worker")
    with Network() as network:
        server = yard.serve(host=network.address)
        host = network.host("ant")
        host.start(yard, url=server.url, count=1, environ={"COVEY_TOKEN": text}).started()
        job = yard.shell(STAY)
        (first,) = yard.trace("began")
        near = yard.pool(count=1, environ={"COVEY_TOKEN": text}).started()
        host.cut()
        watch = Watch()
        yard.trace("began", 2, within_s=LEASE_S + 4)
        assert watch.within(LEASE_S + 2)
        (yard.home / "go").touch()
        yard.completes(job)
        yard.trace("ended", 2)
        host.mend()
        until(lambda: "was given up by the others" in host.pool.said(), 20, "it is told")
        assert yard.attempt(job).stdout != f"{first}\n"
        assert yard.job(job).attempts == 1
        near.stop()
        until(lambda: len(yard.engine.pools()) == 1, 10)
        host.kill()
        until(lambda: not yard.engine.pools(), LEASE_S + 2, "the server gives it up by itself")


# ── beats ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hundred_waiting_pools_cost_one_statement_a_second(engine: Engine, url: str) -> None:
    """Their beats all move, and nothing else is written."""
    beats: list[int] = []
    written: list[str] = []

    def open() -> Engine:
        made = open_engine(url)
        beat, transaction = made.beat, made.store.transaction

        def counting(pools: Any) -> set[int]:
            beats.append(len(pools))
            return beat(pools)

        def noting(*args: Any, **more: Any) -> Any:
            written.append(threading.current_thread().name)
            return transaction(*args, **more)

        made.beat, made.store.transaction = counting, noting  # type: ignore[method-assign]
        return made

    served = Served(open, socket=False)
    remotes = [served.connect() for _ in range(100)]
    pools = [HandPool(remote, pool_info(f"p{n}")) for n, remote in enumerate(remotes)]
    before = {pool.id: pool.beat for pool in engine.pools()}
    for pool in pools:
        pool.turn()
    beats.clear()
    written.clear()
    watch = Watch()
    threads = [
        threading.Thread(target=_wait, args=(remote, pool.id)) for remote, pool in zip(remotes, pools, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: all(pool.beat > before[pool.id] for pool in engine.pools()), 3, "every beat has moved")
    assert len(beats) <= watch.s + 1
    assert len(written) <= len(beats)
    assert max(beats) <= 100
    for remote in remotes:
        remote.close()
    served.close()


def _wait(remote: Remote, pool: int) -> None:
    for _ in range(3):
        assert not remote.wait(pool, None, 0.8)


def test_only_what_a_pool_says_itself_is_a_beat(engine: Engine, url: str) -> None:
    """A wait that ends by the server's own clock shows nobody that its asker still lives."""
    served = Served(lambda: open_engine(url), socket=False)
    remote = served.connect()
    pool = HandPool(remote)
    asked = threading.Thread(target=lambda: remote.wait(pool.id, None, 2.2))
    watch = Watch()
    asked.start()
    asked.join()
    assert watch.s > 2
    (told,) = engine.pools()
    watch = Watch()
    while watch.s < 1.5:
        until(lambda s=watch.s: watch.s > s + 0.1, 1)
        assert engine.pools() == [told]
    remote.wait(pool.id, None, 0)
    until(lambda: engine.pools()[0].beat > told.beat, 3, "the next request is one")
    remote.close()
    served.close()
