"""A pool behind a server that nobody watches for it: when its parent is gone, so is what that had asked for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.core.turn import Caller
from covey.engine.engine import Engine
from covey.env import boot, hostname, start_ticks
from covey.remote.remote import Remote
from covey.testing import until
from tests.kit import command
from tests.kit.http_server import Served
from tests.kit.running import RunningPool, Yard

from .conftest import times


@pytest.fixture
def yard(tmp_path: Path, url: str) -> Iterator[Yard]:
    with Yard(tmp_path, url=url) as yard:
        yield yard


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def start(yard: Yard, served: Served, parent: subprocess.Popen[bytes]) -> RunningPool:
    return yard.pool("--parent-pid", str(parent.pid), "--grace", "2", url=served.url, count=2).started()


def test_the_job_of_a_parent_that_is_gone_is_cancelled_and_another_s_is_handed_back(
    engine: Engine, served: Served, remote: Remote, yard: Yard, parent: subprocess.Popen[bytes]
) -> None:
    """The server in this process watches nobody: as one on another host, for as long as a lease."""
    pool = start(yard, served, parent)
    ticks = start_ticks(parent.pid) or 0
    caller = Caller(host=hostname(), boot=boot(), pid=parent.pid, ticks=ticks, lease_s=3600.0)
    (tied,) = remote.enqueue([command("exec sleep 1000")], caller=caller)
    (other,) = remote.enqueue([command("exec sleep 1000")])
    until(lambda: all(engine.job(made.id).worker for made in (tied, other)), 30, "both run")
    parent.kill()
    assert pool.ended(30) == 1  # the other one had to be killed
    views = [engine.job(made.id) for made in (tied, other)]
    assert [(view.state, view.pool) for view in views] == [("cancelled", None), ("pending", None)]
    assert "is gone" in engine.why(tied.id).reason
    assert engine.callers() == []
    assert times(engine, tied.id, "pending") == times(engine, other.id, "pending") - 1, "it was never handed back"
