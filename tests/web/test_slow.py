"""Slow readers, large bodies, and wishes that are not granted: nobody is cut for them, and nobody else waits."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from covey.core.bodies import MOST_JOBS
from covey.core.endpoints import MSGPACK
from covey.open import open_engine
from covey.web import http_protocol, request
from tests.kit.factories import python_task
from tests.kit.http_server import Served

from .house import House
from .process import Running, answer, connected, head, running

# ── readers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server in this process, which soon loses patience with those who do not read."""
    monkeypatch.setattr(http_protocol, "STUCK_S", 0.5)
    served = Served(lambda: open_engine(str(tmp_path / "queue.db")), socket=True)
    try:
        yield int(served.url.rpartition(":")[2])
    finally:
        served.close()


@pytest.mark.parametrize(("line", "pace"), [("Connection: keep-alive", 1_500_000), ("Connection: close", 4_000_000)])
def test_a_reader_that_is_slow_but_steady_gets_all_of_a_large_answer(
    port: int, tmp_path: Path, line: str, pace: int
) -> None:
    engine = open_engine(str(tmp_path / "queue.db"))
    engine.enqueue([python_task("t", "x" * 1_000_000) for _ in range(9)])
    engine.close()
    with connected(port, SO_RCVBUF=1 << 16) as connection:
        connection.sendall(head("GET", "/v1/jobs", line))
        began, said, wanted = time.monotonic(), b"", 9_000_000
        while len(said) < wanted and (more := connection.recv(1 << 16)):
            said += more
            if found := re.search(rb"content-length: (\d+)\r\n", said[:1000]):
                wanted = said.index(b"\r\n\r\n") + 4 + int(found[1])
            due = began + len(said) / pace
            time.sleep(max(0.0, due - time.monotonic()))  # the pace of the line, not a wait for something
    assert len(said) == wanted > 9_000_000
    assert time.monotonic() - began > 4 * http_protocol.STUCK_S


# ── upgrades ────────────────────────────────────────────────────────────────────────────────────────────────────────

UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
LAST = head("GET", "/health", "Connection: close")


def asked(port: int, data: bytes, size: int) -> list[int]:
    """The status of every answer to that, sent in packets of that size."""
    with connected(port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # packets as they are written
        for at in range(0, len(data), size):
            connection.sendall(data[at : at + size])
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", answer(connection))]


@pytest.mark.parametrize("size", [1 << 20, 7, 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_comes_with_a_wish_for_an_upgrade(port: int, chunked: bool, size: int) -> None:
    """curl --http2 -d …"""

    def post(body: bytes) -> bytes:
        if chunked:
            chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            return head("POST", "/v1/jobs/find", *UPGRADE, "Transfer-Encoding: chunked") + chunks
        return head("POST", "/v1/jobs/find", *UPGRADE, f"Content-Length: {len(body)}") + body

    assert asked(port, post(b'{"queue": "own"}') + LAST, size) == [200, 200]
    # Were it taken for a request, it would be answered as one.
    assert asked(port, post(head("GET", "/health")) + LAST, size) == [400, 200]
    assert asked(port, post(head("GET", "/health")) * 3 + LAST, size) == [400, 400, 400, 200]


@pytest.mark.parametrize("size", [1 << 20, 7])
def test_an_upgrade_is_not_granted_and_the_request_answered_all_the_same(port: int, size: int) -> None:
    for lines in (UPGRADE, ("Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")):
        assert asked(port, head("GET", "/v1/server", *lines) + LAST, size) == [200, 200]
    assert asked(port, head("GET", "/v1/server", "Connection: close, Upgrade", "Upgrade: h2c"), size) == [200]


def test_nobody_gets_a_tunnel(port: int) -> None:
    for lines in ((), UPGRADE, ("Content-Length: 5",)):
        assert asked(port, head("CONNECT", "localhost:80", *lines) + LAST, 1 << 20) == [400]


# ── large bodies ────────────────────────────────────────────────────────────────────────────────────────────────────


def slowest_meanwhile(server: Running, path: str, body: object) -> tuple[float, float, bytes]:
    """(how long the slowest of all other questions took, how long this one took, what was said to it)."""
    data = msgspec.msgpack.encode(body)
    lines = (f"Content-Length: {len(data)}", f"Content-Type: {MSGPACK}", "Connection: close")
    said = []

    def send() -> None:
        with connected(server.port, head("POST", path, *lines) + data) as connection:
            said.append(answer(connection, 120))

    server.ask("GET", "/v1/server")  # its engines are open
    sender = threading.Thread(target=send)
    began, slowest_s = time.monotonic(), 0.0
    sender.start()
    while sender.is_alive():
        asked_at = time.monotonic()
        assert server.ask("GET", "/v1/server")[0] == 200
        slowest_s = max(slowest_s, time.monotonic() - asked_at)
    return slowest_s, time.monotonic() - began, said[0]


def test_nobody_waits_while_a_large_body_is_looked_at(tmp_path: Path) -> None:
    """A pool whose turns wait for longer than its lease is given up."""
    with running(tmp_path / "queue.db") as server:
        specs = [{"task": "t", "priority": 0}] * (MOST_JOBS - 1)
        slowest_s, took_s, said = slowest_meanwhile(server, "/v1/jobs/specs", {"specs": [*specs, {"task": "a\0"}]})
        assert slowest_s < took_s / 2, (slowest_s, took_s)
        assert said.startswith(b"HTTP/1.1 400")
        assert b"U+0000" in said

        held = {"held": [[1, 1]] * 500_000, "given_up": {"a": "b\0"}}
        turn = {"pool": 1, "database_id": "d", "number": 1, **held}
        slowest_s, took_s, said = slowest_meanwhile(server, "/v1/pools/1/turn", turn)
        assert slowest_s < took_s / 2, (slowest_s, took_s)
        assert said.startswith(b"HTTP/1.1 400")
        assert b"NUL" in said


@pytest.mark.parametrize("kind", ["application/json", MSGPACK])
@pytest.mark.parametrize(
    "bad",
    [
        {"task": "a\0"},
        {"task": "t", "batch": "b\0"},
        {"task": "t", "cwd": "/\0"},
        {"task": "t", "created_by": "c\0"},
        {"task": "t", "key": "k\0"},
        {"task": "t", "unique_key": "k\0"},
        {"task": "t", "queue": "q\0"},
        {"task": "t", "labels": {"l\0": ""}},
        {"task": "t", "labels": {"l": "v\0"}},
        {"task": "t", "args": '["\0"]'},
        {"task": "t", "priority": (1 << 64) - 1},
        {"task": "t", "run_at": (1 << 64) - 1},
        {"task": "t", "policy": {"max_attempts": (1 << 64) - 1}},
        {"task": "t", "priority": "high"},
        {"task": "t", "kind": "none"},
        {"key": "k"},
        1,
    ],
)
def test_one_bad_spec_is_refused_among_few_and_among_many(house: House, bad: object, kind: str) -> None:
    written = msgspec.msgpack.encode if kind == MSGPACK else msgspec.json.encode
    few = written({"specs": [{"task": "t"}, bad]})
    many = written({"specs": [*[{"task": "t"}] * 40_000, bad]})
    assert len(few) < request.LARGE < len(many)
    for body in (few, many):
        said = house.ask("POST", "/v1/jobs/specs", body, headers=[("content-type", kind)])
        assert (said.status, said.code) == (400, "invalid_input"), said


def test_what_a_large_body_says_counts_as_in_a_small_one(house: House) -> None:
    for count in (1, 3_000):
        specs = [
            {"task": "t", "args": '["\\u0000"]', "labels": {"a": "b" * 50}, "key": f"{count}-{n}"} for n in range(count)
        ]
        said = house.ask("POST", "/v1/jobs/specs", {"specs": specs, "request": f"r{count}"})
        assert said.status == 200
        assert len(said.json) == count
        assert house.ask("POST", "/v1/jobs/specs", {"specs": specs, "request": f"r{count}"}).json == said.json
        for wrong in ({"request": "r\0"}, {"request": ""}, {"requests": "r"}, {"specs": specs + [specs]}):
            said = house.ask("POST", "/v1/jobs/specs", {"specs": specs, **wrong})
            assert (said.status, said.code) == (400, "invalid_input"), said
