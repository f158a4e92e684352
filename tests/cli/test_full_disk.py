"""A disk that is full or nearly so: status and doctor see it before anybody loses time over it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.engine.engine import Engine
from covey.errors import StoreError
from covey.open import open_engine
from covey.store.sqlite.disk_space import FULL
from tests.kit import command
from tests.kit.faults import SmallDisk

from ..web.process import Running, running
from .conftest import CommandLine


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    with SmallDisk(str(place), 8) as small:
        yield small


@contextlib.contextmanager
def on(disk: SmallDisk) -> Iterator[Engine]:
    engine = open_engine(os.path.join(disk.directory, "queue.db"))
    try:
        yield engine
    finally:
        engine.close()


def fill_but(disk: SmallDisk, left: int) -> None:
    disk.fill()
    filler = os.path.join(disk.directory, "filler")
    os.truncate(filler, os.path.getsize(filler) - left)


def test_a_full_disk_is_broken_to_status_and_bad_to_doctor(covey: CommandLine, disk: SmallDisk) -> None:
    at = ("--db", f"{disk.directory}/queue.db")
    with on(disk) as engine:
        made = engine.enqueue([command()])
        assert "the disk of" not in covey(*at, "status").out
        disk.fill()
        status = covey(*at, "status")
        assert status.code == 2
        assert f"broken       the disk of the queue ({disk.directory}) is full; free some" in status.out
        assert engine.status().health == "broken"
        assert [finding.level for finding in engine.disk()] == ["broken"]
        doctor = covey(*at, "doctor", "--json")
        assert doctor.code == 1
        assert ("bad", "tmpfs, is full") in [(each["verdict"], each["text"]) for each in doctor.json]
        with pytest.raises(StoreError, match="no space left for"):
            engine.enqueue([command("x" * 9000)])
        disk.free()
        assert engine.disk() == []
        assert covey(*at, "status").code == 1
        assert engine.job(made[0].id).state == "pending"


def test_a_full_disk_is_named_also_where_nobody_has_the_queue_open(covey: CommandLine, disk: SmallDisk) -> None:
    at = ("--db", f"{disk.directory}/queue.db")
    with on(disk) as engine:
        engine.enqueue([command()])
    disk.fill()
    for verb, code in ((["status"], 2), (["enqueue", "true"], 1), (["list"], 1)):
        said = covey(*at, *verb)
        assert (said.code, said.out) == (code, "")
        assert said.err.startswith("error: no space left ")


def test_a_disk_that_is_almost_full_is_worth_a_warning(covey: CommandLine, disk: SmallDisk) -> None:
    with on(disk) as engine:
        engine.enqueue([command()])
        fill_but(disk, FULL + (128 << 10))
        (found,) = engine.disk()
        assert (found.level, "is almost full: 0." in found.text) == ("warning", True)
        assert engine.status().health == "warning"


def test_a_full_disk_of_live_output_alone_stops_no_job(covey: CommandLine, tmp_path: Path) -> None:
    covey("enqueue", "true")
    live = tmp_path / "queue.db-covey" / "live"
    live.mkdir()
    with SmallDisk(str(live), 1) as small:
        small.fill()
        with covey.engine() as engine:
            (found,) = engine.disk()
        assert found.level == "warning"
        assert found.text == f"the disk of live output ({live}) is full"
        assert covey("worker", "start", "--count", "1", "--drain").code == 0
        assert covey.state(1) == "completed"


def test_a_server_with_a_full_disk_lives_and_is_not_ready(disk: SmallDisk) -> None:
    with running(Path(disk.directory) / "queue.db") as server:
        assert ready(server) == (200, None)
        disk.fill()
        status, reason = ready(server)
        assert (status, "is full" in str(reason)) == (503, True)
        assert disk.directory not in str(reason)
        assert get(server, "/livez")[0] == 200
        disk.free()
        assert ready(server) == (200, None)


def ready(server: Running) -> tuple[int, str | None]:
    status, body = get(server, "/readyz")
    return status, body.get("reason")


def get(server: Running, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
