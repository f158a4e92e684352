"""Where control groups can be had, nothing escapes, not even what has shed its parents and its mark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.env import start_ticks
from covey.system import cgroup
from covey.testing.until import until
from tests.kit.lacking import Lacking
from tests.kit.running import Yard

ON = {"COVEY_CGROUP": "on"}
# No environment, no parent that we know, a session of its own: only the group still holds it.
ESCAPE = "env -i setsid sh -c 'sh -c \"echo \\$\\$ >>pids; exec sleep 1000\" & exit' & sleep 1000"


@pytest.fixture
def groups(yard: Yard) -> Iterator[str]:
    """The directory that holds our groups. In the end none of this queue's is left, or a pool lives in it."""
    made = cgroup.create(f"covey-probe-{os.getpid()}")
    if made is None:
        raise Lacking("no control group (version 2) is delegated to this process")
    cgroup.end(made)
    yield os.path.dirname(made)
    for pool in yard.pools:
        if pool.process.poll() is None:
            pool.stop()
    assert cgroup.left(yard.engine.database_id) == []


def test_everything_that_a_pool_starts_is_in_its_group_and_the_group_goes_with_it(yard: Yard, groups: str) -> None:
    pool = yard.pool(count=2, environ=ON).started()
    yard.shell("echo $$ >>pids; sleep 1000; true")
    yard.trace("pids")
    (group,) = [path for path in _groups(groups) if path.endswith(f"-{pool.pid}-{start_ticks(pool.pid)}")]

    def inside() -> set[int]:
        return {int(pid) for path in Path(group).rglob("cgroup.procs") for pid in path.read_text().split()}

    until(lambda: {*pool.processes()} - {pool.pid} == inside(), 5, "all are in the group")
    pool.send(signal.SIGTERM).send(signal.SIGINT)
    assert pool.ended() == 1
    assert not os.path.exists(group)


def test_what_shed_its_parents_and_its_mark_is_ended_by_the_next_pool(yard: Yard, groups: str) -> None:
    pool = yard.pool(count=1, environ=ON).started()
    id = yard.shell(ESCAPE)
    (escaped,) = [int(each) for each in yard.trace("pids")]
    victims = [pool.guard, pool.zygote, *pool.workers()]
    for pid in [pool.pid, *victims]:  # frozen first: nobody may do anything about the others
        os.kill(pid, signal.SIGSTOP)
    pool.process.kill()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    pool.process.wait()
    assert start_ticks(escaped) is not None
    yard.pool(count=1, environ=ON).started()
    until(lambda: start_ticks(escaped) is None, 5, "the next pool has ended it")
    assert _groups(groups) == [path for path in _groups(groups) if f"-{pool.pid}-" not in path]
    assert yard.is_in(id, "processing", "pending").attempts <= 1


def test_a_lost_worker_s_group_is_ended_with_it(yard: Yard, groups: str) -> None:
    pool = yard.pool(count=1, environ=ON).started()
    id = yard.shell(ESCAPE, max_attempts=1)
    (escaped,) = [int(each) for each in yard.trace("pids")]
    os.kill(pool.worker_of(id), signal.SIGKILL)
    yard.is_in(id, "dead")
    until(lambda: start_ticks(escaped) is None, 2, "it is gone with its worker")


def test_a_pool_that_is_not_let_in_leaves_no_group(yard: Yard, groups: str) -> None:
    """Nor does a second try, or a service that is restarted for ever would leave one each time."""
    for _ in range(2):
        pool = yard.pool(count=1, environ=ON, failpoints={"register.before_commit": "raise"})
        assert pool.ended() != 0
        assert [path for path in _groups(groups) if f"-{pool.pid}-" in path] == []


def test_a_pool_that_breaks_after_it_was_let_in_leaves_no_group_and_no_row(yard: Yard, groups: str) -> None:
    pool = yard.pool(count=1, environ=ON, failpoints={"pool.after_register": "raise"})
    assert pool.ended() != 0
    assert [path for path in _groups(groups) if f"-{pool.pid}-" in path] == []
    assert yard.engine.pool_views() == []


def test_a_group_that_another_pool_might_mean_is_left_alone(yard: Yard, groups: str) -> None:
    """The name in a lost pool's row is trusted only if it is the one that this very pool would have made."""
    foreign = os.path.join(groups, f"covey-foreign-{os.getpid()}")
    os.mkdir(foreign)
    try:
        pool = yard.pool(count=1).started()
        with yard.engine.store.transaction():
            yard.engine.store.raw("update {pools} set cgroup = :path", path=foreign)
        pool.kill()
        yard.pool(count=1).started()
        until(lambda: len(yard.engine.pool_views()) == 1, 5, "the lost pool is reaped")
        assert os.path.isdir(foreign)
    finally:
        os.rmdir(foreign)


def _groups(directory: str) -> list[str]:
    return [entry.path for entry in os.scandir(directory) if entry.is_dir() and entry.name.startswith(cgroup.PREFIX)]
