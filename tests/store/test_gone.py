"""The file is unlinked, replaced or moved under running pools and a server. Nobody works on in silence."""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from covey.core.view import Filter
from covey.engine.engine import Engine
from covey.errors import Gone
from covey.open import open_engine
from covey.testing import until
from tests.kit import command
from tests.kit.running import RunningPool, Yard


def unlink(yard: Yard) -> None:
    os.unlink(yard.db)


def replace(yard: Yard) -> None:
    """By another queue, with a job that nobody of this one may run."""
    for rest in ("-wal", "-shm"):
        os.unlink(yard.db + rest)
    stranger = open_engine(str(yard.home / "stranger.db"))
    stranger.enqueue([command("echo stranger >>traces", cwd=str(yard.home))])
    stranger.close()
    os.replace(yard.home / "stranger.db", yard.db)


def remove_directory(yard: Yard) -> None:
    shutil.rmtree(os.path.dirname(yard.db))


@pytest.fixture
def yards(tmp_path: Path) -> Iterator[Callable[[str], Yard]]:
    with ExitStack() as closing:

        def yard(name: str) -> Yard:
            (tmp_path / name / "place").mkdir(parents=True)
            return closing.enter_context(Yard(tmp_path / name, url=str(tmp_path / name / "place" / "queue.db")))

        yield yard


def counted(pool: RunningPool) -> int:
    """Lines in which it said so."""
    return pool.said().count("the queue cannot be used")


def test_a_pool_whose_file_is_gone_or_another_ends_with_the_reason_and_stops_what_it_ran(
    yards: Callable[[str], Yard],
) -> None:
    faults = {fault: yards(fault.__name__) for fault in (unlink, replace, remove_directory)}
    pools = {fault: yard.pool(count=2, commands_only=True) for fault, yard in faults.items()}
    for fault, yard in faults.items():
        yard.runs(yard.shell("echo begun >>traces; sleep 60"))
        yard.trace()
        fault(yard)
    for fault, pool in pools.items():
        assert pool.ended(15) == 1, pool.said()
        assert counted(pool) == 1, pool.said()
        assert pool.said().splitlines()[-1].startswith("error: ")
        assert "was removed or replaced while in use" in pool.said().splitlines()[-1]
        assert "Traceback" not in pool.said()
        yard = faults[fault]
        until(lambda yard=yard: not yard.leftovers(), 2, "its processes are gone")  # type: ignore[misc]
        assert yard.traces() == ["begun"]  # nothing of the stranger's
        assert not os.path.exists(yard.db) or fault is replace
    stranger = open_engine(faults[replace].db)
    assert [(job.state, job.attempts) for job in stranger.jobs(Filter()).jobs] == [("pending", 0)]
    assert stranger.store.dialect.problems() == []  # type: ignore[attr-defined]
    stranger.close()


def test_a_pool_whose_file_is_moved_away_for_a_moment_goes_on(yards: Callable[[str], Yard]) -> None:
    yard = yards("moved")
    pool = yard.pool(count=1, commands_only=True).started()
    yard.completes(yard.shell("true"))
    os.rename(yard.db, yard.db + ".away")
    until(lambda: counted(pool) == 1, 10, "the pool notices")
    os.rename(yard.db + ".away", yard.db)
    yard.completes(yard.shell("true"))
    assert pool.process.poll() is None
    assert "the queue can be used again" in pool.said()
    assert pool.stop() == 0


def test_a_read_tells_nothing_of_a_file_that_is_gone(path: str, opened: Callable[[str], Engine]) -> None:
    engine = opened(path)
    (made,) = engine.enqueue([command()])
    os.unlink(path)
    for read in (engine.status, lambda: engine.job(made.id), lambda: engine.jobs(Filter()), engine.pools):
        with pytest.raises(Gone, match="removed or replaced"):
            read()


def answer(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("fault", [unlink, replace])
def test_a_server_whose_file_is_gone_says_so_and_serves_no_other(
    yards: Callable[[str], Yard], fault: Callable[[Yard], None]
) -> None:
    yard = yards("served")
    server = yard.serve()
    assert answer(f"{server.url}/health") == 200
    fault(yard)
    assert answer(f"{server.url}/health") == 503
    # More threads than had an engine before: none of them opens what lies there now, or makes a new file.
    assert {answer(f"{server.url}/v1/status") for _ in range(20)} == {503}
    assert os.path.exists(yard.db) is (fault is replace)
    assert "Traceback" not in server.said()
    assert server.stop() == 0
