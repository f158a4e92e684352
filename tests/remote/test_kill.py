"""Random kills of servers, pools, zygotes and workers while clients enqueue over HTTP; and bugs that must be found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools.torture.mutants import caught, hunt
from tools.torture.run import Torture

from tests.kit.postgres import Given, Server


@pytest.fixture(params=["file", "postgres"])
def queue(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The URL of an empty queue; None for a file in the test's own directory."""
    if request.param == "file":
        yield None
        return
    server: Server | Given = request.getfixturevalue("server")
    schema = f"served_{os.getpid()}"
    yield server.url(schema)
    with server.admin() as db:
        db.execute(f"drop schema if exists {schema} cascade".encode())


def test_nothing_is_lost_doubled_or_stranded_when_servers_and_pools_are_killed(
    tmp_path: Path, queue: str | None, proof: Callable[[int, int], int]
) -> None:
    jobs, kills = proof(40, 2000), proof(6, 200)
    torture = Torture(tmp_path, jobs=jobs, kills=kills, seed=proof(716, 8), url=queue, served=True, limit_s=300)
    found = torture.run()
    assert found.problems == []
    assert found.kills.total() == torture.kills
    assert found.kills["server"] > 1
    assert found.kills["pool"] > 0


def test_a_pool_that_forgets_what_it_told_a_server_that_died_is_found() -> None:
    found = hunt("forgetful", 2, jobs=40)
    assert caught("forgetful", found), found.problems[:5]
