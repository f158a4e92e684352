"""Pools on several hosts: cut off, killed, come back. A host is a network namespace with its own name and pids.

No pool leads: whoever is lost, the others hand its jobs back after its lease.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from covey.system import process_tree
from covey.testing import until
from tests.kit import check_queue
from tests.kit.hosts import Host, Network, need_hosts
from tests.kit.postgres import Server
from tests.kit.running import Watch, Yard

LEASE_S, BEAT_S = 2.0, 0.5
WITHIN_S = LEASE_S + 2.0

# Says where it runs, goes on until this run may end, says so again. Only its output tells whose run counted.
STAY = "hostname >>began; while ! test -e go-$(hostname)-$COVEY_JOB_ID; do sleep 0.05; done; hostname >>ended; hostname"


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    need_hosts()
    with Network() as network:
        yield network


@pytest.fixture(scope="module")
def own_server(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        server = Server(network=(network.address, network.range))
        yield server
        server.close()


@pytest.fixture(scope="module")
def hosts(network: Network) -> list[Host]:
    return [network.host(name) for name in ("ant", "bee", "cat")]


@pytest.fixture
def make_yard(network: Network, own_server: Server, hosts: list[Host], tmp_path: Path) -> Iterator[Callable[..., Yard]]:
    with contextlib.ExitStack() as stack:

        def make(**options: object) -> Yard:
            url = own_server.tcp_url(f"fleet_{os.urandom(4).hex()}", host=network.address)
            url += "".join(f"&{name}={value}" for name, value in options.items())
            return stack.enter_context(Yard(tmp_path, url=url, heartbeat_seconds=BEAT_S, lock_lease_seconds=LEASE_S))

        yield make
        for host in hosts:
            host.quit()


@pytest.fixture
def yard(make_yard: Callable[..., Yard]) -> Yard:
    return make_yard()


def started(yard: Yard, hosts: Sequence[Host]) -> dict[str, Host]:
    """A pool on each of these hosts."""
    for host in hosts:
        host.start(yard)
    for host in hosts:
        host.pool.started()
    return {host.name: host for host in hosts}


def pools(yard: Yard) -> dict[str, int]:
    """Host → pool, as the queue's books have it."""
    return {view.host: view.id for view in yard.engine.pool_views()}


def processes(yard: Yard, pool: int) -> list[int]:
    """What a pool has started and still lives, on whatever host."""
    return process_tree.marked(f"{yard.mark}{pool}:")


def allow(yard: Yard, host: str, job: int) -> None:
    (yard.home / f"go-{host}-{job}").touch()


def test_hosts_have_names_and_do_not_see_each_other_s_processes(yard: Yard, hosts: list[Host]) -> None:
    fleet = started(yard, hosts)
    told = yard.run("worker", "list", "--json")
    assert sorted((pool["host"], pool["name"], pool["pid"]) for pool in json.loads(told.stdout)) == [
        ("ant", "ant-1", 1),
        ("bee", "bee-1", 1),
        ("cat", "cat-1", 1),
    ]
    assert len({pool.boot for pool in yard.engine.pools()}) == 3
    yard.completes(*yard.shells(["hostname >>began; sleep 0.5"] * 6))
    assert set(yard.traces("began")) == fleet.keys()  # six places, six jobs: each of them has worked
    for host in hosts:
        assert host.stop() == 0, host.pool.said()
    assert pools(yard) == {}


@pytest.mark.parametrize("length", ["short", "long"])
def test_a_host_that_is_cut_off_loses_its_jobs_to_the_others_and_its_late_results_are_refused(
    make_yard: Callable[..., Yard], hosts: list[Host], proof: Callable[[int, int], int], length: str
) -> None:
    """Short: its connection outlives the cut. Long: it is given up (after 10 s by default), and made again."""
    yard = make_yard(tcp_user_timeout=proof(3000, 10_000), connect_timeout=proof(2, 5))
    cut, *others = hosts
    started(yard, [cut])
    late, going = yard.shells([STAY, STAY], max_attempts=1)
    yard.trace("began", 2)
    old = pools(yard)[cut.name]
    started(yard, others)
    cut.cut()
    watch = Watch()
    began = yard.trace("began", 4, within_s=WITHIN_S)
    assert watch.s > LEASE_S - BEAT_S - 0.5  # not before its lease was over
    assert cut.name not in began[2:]
    assert len(processes(yard, old)) >= 2  # it knows nothing, and goes on
    allow(yard, cut.name, late)
    yard.trace("ended")  # a run ends that nobody can hear of
    for host in others:
        allow(yard, host.name, late)
    (done,) = yard.completes(late, within_s=5)
    assert (done.attempts, done.interruptions) == (1, 1)
    assert yard.attempt(late).stdout.strip() in {host.name for host in others}
    if length == "long":
        until(lambda: "the queue cannot be used" in cut.pool.said(), 30, "it notices that nobody answers")
    cut.mend()
    until(lambda: "this pool was given up by the others" in cut.pool.said(), 30, "it hears of it")
    until(lambda: not processes(yard, old), 2, "what it still ran is ended")
    until(lambda: pools(yard).get(cut.name, old) != old, 5, "it registers anew")
    for host in hosts:
        allow(yard, host.name, going)
    (job,) = yard.completes(going)
    assert (job.attempts, job.interruptions) == (1, 1)
    assert yard.traces("ended").count(cut.name) == 1
    now = yard.job(late)
    assert (now.state, now.fence, now.finished_at) == ("completed", done.fence, done.finished_at)
    assert len(yard.engine.history(late)) == 1
    for host in others:
        assert host.stop() == 0, host.pool.said()
    yard.completes(yard.shell("hostname >>alone"))
    assert yard.traces("alone") == [cut.name]
    assert check_queue(yard.engine, acknowledged=[late, going]) == []
    assert cut.stop() == 0, cut.pool.said()


def test_whichever_host_dies_another_runs_its_job_within_a_lease_and_two_seconds(yard: Yard, hosts: list[Host]) -> None:
    """Two of three, one after the other: the job goes to whoever is left, and nobody was in charge."""
    fleet = started(yard, hosts)
    id = yard.shell(STAY, max_attempts=1)
    seen = yard.trace("began", 1)
    for deaths in (1, 2):
        fleet[seen[-1]].kill()
        seen = yard.trace("began", deaths + 1, within_s=WITHIN_S)
        assert (yard.job(id).attempts, yard.job(id).interruptions) == (1, deaths)
    assert sorted(seen) == sorted(fleet)
    allow(yard, seen[-1], id)
    yard.completes(id)
    assert yard.attempt(id).stdout.strip() == seen[-1]
    assert pools(yard).keys() == {seen[-1]}
    fleet[seen[0]].start(yard).started()
    assert fleet[seen[-1]].stop() == 0
    yard.completes(yard.shell("hostname >>alone"))
    assert yard.traces("alone") == [seen[0]]


def test_a_host_that_is_cut_off_in_the_middle_of_a_turn_holds_up_nobody(yard: Yard, hosts: list[Host]) -> None:
    """Its transaction stays open on the server, with its locks, but not for as long as its lease."""
    cut, other, _ = hosts
    id = yard.shell("hostname >>began")
    cut.start(yard, failpoints={"turn.before_commit": f"once:{yard.home}/here:sleep:60"})
    until(lambda: (yard.home / "here").exists(), 15, "it is inside a turn")
    held = pools(yard)
    other.start(yard).started()
    cut.cut()
    for _ in range(5):
        yard.completes(yard.shell("hostname >>meanwhile"), within_s=1.5)
    yard.completes(id, within_s=WITHIN_S)
    until(lambda: pools(yard).keys() == {other.name}, WITHIN_S, "it is given up")
    assert held.keys() == {cut.name}
    assert {*yard.traces("began"), *yard.traces("meanwhile")} == {other.name}
