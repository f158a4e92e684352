"""What compose.yaml and the Dockerfile say, the program understands: their commands are played without an engine."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.testing.until import until
from tests.kit.running import Yard

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "compose.yaml").read_text()
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    (tmp_path / "data").mkdir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "bin").mkdir()
    with Yard(tmp_path, url=str(tmp_path / "data" / "queue.db")) as yard:
        covey = tmp_path / "bin" / "covey"
        covey.write_text(f'#!/bin/sh\nexec {" ".join(yard.covey())} "$@"\n')
        covey.chmod(0o755)
        yield yard


def commands(yard: Yard, port: str) -> dict[str, list[str]]:
    """Service → what it runs, in the places of this test."""
    found = re.findall(r"^  (\w+):\n(?:    .*\n)*?    command: (\[.*\])$", COMPOSE, re.MULTILINE)
    return {service: [placed(word, yard, port) for word in json.loads(text)] for service, text in found}


def placed(text: str, yard: Yard, port: str) -> str:
    text = text.replace("/data", f"{yard.home}/data").replace("/run/covey", f"{yard.home}/secrets")
    return re.sub(
        r"\b8765\b", port, text.replace("http://server:", "http://127.0.0.1:").replace("0.0.0.0", "127.0.0.1")
    )


def script(yard: Yard) -> str:
    """What makes the token."""
    (block,) = re.findall(r"      - \|\n((?:        .*\n)+)", COMPOSE)
    return placed(textwrap.dedent(block), yard, "0").replace("$$", "$")


def is_answering(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_services_work_together(yard: Yard) -> None:
    environ = yard.environ() | {"PATH": f"{yard.home}/bin:{os.environ['PATH']}"}
    for _ in range(2):  # the second time nothing is to be done
        subprocess.run(["sh", "-euc", script(yard)], env=environ, check=True, capture_output=True, timeout=120)
    token = yard.home / "secrets" / "token"
    assert token.stat().st_mode & 0o777 == 0o600
    (made,) = yard.engine.tokens()
    assert made.role == "worker"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    told = commands(yard, port)
    processes = []
    try:
        for words in (["--require-token"], []):
            service = "server" if words else "worker"
            processes.append(subprocess.Popen(["covey", *told[service], *words], env=environ, cwd=yard.home))
            until(lambda: is_answering(int(port)), 30, "the server is healthy, which its workers wait for")
        yard.completes(yard.shell("true"))
        assert [view.count for view in yard.engine.pool_views()] == [1]
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)
    until(lambda: not yard.engine.pool_views(), 10, "the worker has left")


def test_a_worker_s_grace_is_shorter_than_the_engine_s() -> None:
    (grace,) = re.findall(r'"--grace", "(\d+)"', COMPOSE)
    (limit,) = re.findall(r"stop_grace_period: (\d+)s", COMPOSE)
    assert int(grace) < int(limit)


def test_the_image_runs_covey_as_nobody_special() -> None:
    assert 'ENTRYPOINT ["covey"]' in DOCKERFILE
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", DOCKERFILE, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed
