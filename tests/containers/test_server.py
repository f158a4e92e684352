"""Containers work through a server: the queue's own if it runs, else one that the supervisor has for the time being."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from covey.discovery import found
from covey.testing.until import until
from tests.kit.running import gone

from .dock import Dock

GATEWAY = "127.0.0.2"  # as the fake engine says


@pytest.fixture
def over_http(dock: Dock) -> Dock:
    """Containers do what they are told."""
    dock.unsay("database")
    return dock


@pytest.fixture
def port() -> str:
    with socket.socket() as probe:
        probe.bind((GATEWAY, 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def serve(over_http: Dock) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Servers that are ended with the test."""
    servers: list[subprocess.Popen[bytes]] = []
    yield servers
    for each in servers:
        each.terminate()
        each.wait(20)


def server(dock: Dock, host: str, port: str) -> subprocess.Popen[bytes]:
    words = [*dock.yard.covey(), "server", "--host", host, "--port", port, "--db", dock.yard.db, "--quiet"]
    process = subprocess.Popen(words, env=dock.yard.environ(), stdin=subprocess.DEVNULL, start_new_session=True)
    until(lambda: found(dock.yard.side), 20, "the server runs")
    return process


def test_without_a_server_one_is_started_on_the_gateway_and_ends_with_the_supervisor(
    over_http: Dock, port: str
) -> None:
    pool = over_http.start("--worker", "default=2", "--port", port, server=()).started()
    running = found(over_http.yard.side)
    assert running is not None
    assert running.url == f"http://{GATEWAY}:{port}"
    over_http.yard.completes(*over_http.yard.shells(["true"] * 4))
    (token,) = over_http.yard.engine.tokens()
    assert (token.role, token.queues, token.state) == ("worker", ["default"], "valid")
    assert pool.stop(signal.SIGINT) == 0
    assert gone(running.pid)
    assert found(over_http.yard.side) is None
    assert [each.state for each in over_http.yard.engine.tokens()] == ["revoked"]


def test_a_server_that_runs_is_used_and_left_running(
    over_http: Dock, port: str, serve: list[subprocess.Popen[bytes]]
) -> None:
    serve.append(server(over_http, GATEWAY, port))
    pool = over_http.start("--worker", "default=1", server=()).started()
    over_http.yard.completes(over_http.yard.shell("true"))
    (call,) = over_http.calls("run")
    assert f"http://{GATEWAY}:{port}" in call
    again = over_http.start("--worker", "default=1", server=())  # who comes next finds the container that is warm
    assert again.process.wait(30) == 0
    assert "they are used" in again.said()
    assert len(over_http.calls("run")) == 1
    pool.stop()
    assert serve[0].poll() is None


def test_a_server_that_containers_cannot_reach_is_refused_in_one_line(
    over_http: Dock, port: str, serve: list[subprocess.Popen[bytes]]
) -> None:
    serve.append(server(over_http, "127.0.0.1", port))
    told = over_http.covey("worker", "start", "--executor", "docker", "--image", "img", "--worker", "default=1")
    assert told.returncode == 1
    (line,) = told.stderr.strip().splitlines()
    assert f"containers cannot reach http://127.0.0.1:{port}" in line
    assert "--server URL" in line
    assert over_http.calls("run") == []


def test_an_engine_whose_gateway_is_elsewhere_is_refused_in_one_line(over_http: Dock) -> None:
    over_http.say("gateway", "203.0.113.7")
    told = over_http.covey("worker", "start", "--executor", "docker", "--image", "img", "--worker", "default=1")
    assert told.returncode == 1
    (line,) = told.stderr.strip().splitlines()
    assert "203.0.113.7, which is no address of this host" in line
    assert all(token.state == "revoked" for token in over_http.yard.engine.tokens())


def test_the_server_and_the_token_of_a_killed_supervisor_go_too(over_http: Dock, port: str) -> None:
    pool = over_http.start("--worker", "default=1", "--port", port, server=()).started()
    running = found(over_http.yard.side)
    assert running is not None
    pool.kill()
    until(lambda: gone(running.pid), 20, "the server ends with its supervisor")
    next_one = over_http.start("--worker", "default=1", "--port", port, server=()).started()
    assert sorted(token.state for token in over_http.yard.engine.tokens()) == ["revoked", "valid"]
    over_http.yard.completes(over_http.yard.shell("true"))
    next_one.stop()
