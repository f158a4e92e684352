"""What is too large or too slow is cut, and nobody else notices."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.core import endpoints
from covey.open import open_engine
from covey.testing.until import slack
from covey.web import http_protocol, request
from tests.kit.http_server import Served
from tests.kit.running import Watch

from .process import Running, answer, ask, connected, head, running

MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "queue.db") as server:
        yield server


def flood(connection: socket.socket, *, chunked: bool) -> bytes:
    """Megabytes until the other side has had enough; what it said."""
    part = b"x" * (1 << 16)
    part = b"%x\r\n%s\r\n" % (len(part), part) if chunked else part
    with contextlib.suppress(ConnectionError, TimeoutError):
        for _ in range(64 * MIB // len(part)):
            connection.sendall(part)
    return answer(connection)


def test_what_is_too_large_is_refused_and_costs_no_memory(server: Running) -> None:
    ask(server.port, "POST", "/v1/jobs/find", {})  # its engines are open
    before = server.memory
    cases = [
        (413, head("POST", "/v1/jobs/find", f"Content-Length: {endpoints.MAX_BODY + 1}"), None),
        (413, head("POST", "/v1/pools/1/turn", f"Content-Length: {1 << 40}"), None),
        (413, head("POST", "/v1/jobs/find", f"Content-Length: {1 << 40}"), False),
        (413, head("POST", "/v1/jobs/find", "Transfer-Encoding: chunked"), True),
        (400, head("POST", "/v1/jobs/find", f"Content-Length: {'9' * 40}"), None),
        (431, head("GET", "/health", f"X-Long: {'x' * 65536}"), None),
        (431, head("GET", f"/health?{'x' * 65536}"), None),
        (431, head("GET", "/health", *(f"X-{n}: {'x' * 100}" for n in range(600))), None),
        (431, b"GET /health HTTP/1.1\r\nX-Endless: " + b"x" * 65536, None),
        (400, b"\x16\x03\x01 this is not HTTP\r\n\r\n", None),
        (400, head("POST", "/v1/jobs/find", "Content-Length: 2", "Content-Length: 3") + b"{}", None),
    ]
    deep = b"[" * 10_000 + b"]" * 10_000
    cases.append((400, head("POST", "/v1/jobs", f"Content-Length: {len(deep)}", "Connection: close") + deep, None))
    for status, data, chunked in cases:
        with connected(server.port) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            said = answer(connection) if chunked is None else flood(connection, chunked=chunked)
        # Who goes on sending may find the connection gone before he has read why.
        assert said.startswith(b"HTTP/1.1 %d" % status) or (chunked is not None and not said), (data[:80], said[:200])
        assert not said or b'"code"' in said
    assert server.memory - before <= 20 * MIB
    assert server.ask("GET", "/health")[0] == 200


def test_a_body_of_exactly_the_limit_is_read(server: Running) -> None:
    body = b'{"queue": "own"}'.ljust(endpoints.MAX_BODY)
    lines = (f"Content-Length: {len(body)}", "Connection: close")
    with connected(server.port, head("POST", "/v1/jobs/find", *lines)) as connection:
        connection.sendall(body)
        assert answer(connection).startswith(b"HTTP/1.1 200")


def test_a_refused_request_leaves_the_connection_usable_if_its_body_has_come(server: Running) -> None:
    with connected(server.port) as connection:
        for _ in range(3):
            connection.sendall(head("POST", "/nowhere", "Content-Length: 5") + b"hello")
            said = b""
            while not said.endswith(b"}}"):
                said += connection.recv(4096)
            assert said.startswith(b"HTTP/1.1 404")


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proof: Callable[..., float]) -> Iterator[int]:
    """The port of a server in this process, which is less patient unless all is to be proven."""
    monkeypatch.setattr(http_protocol, "HEAD_S", proof(1.0, http_protocol.HEAD_S))
    monkeypatch.setattr(request, "BODY_S", proof(1.0, request.BODY_S))
    monkeypatch.setattr(http_protocol, "STUCK_S", proof(1.0, http_protocol.STUCK_S))
    served = Served(lambda: open_engine(str(tmp_path / "queue.db")), socket=True)
    try:
        yield int(served.url.rpartition(":")[2])
    finally:
        served.close()


def test_slow_senders_are_cut_and_hold_nobody_up(quick: int, proof: Callable[..., float]) -> None:
    count, patience_s = int(proof(60, 500)), proof(8.0, 15.0)
    slow = [connected(quick, b"GET /health HTTP/1.1\r\nHost: loc") for _ in range(count)]
    begun = [
        head("POST", "/v1/jobs/find", "Content-Length: 1000000"),
        head("POST", "/v1/jobs/find", "Transfer-Encoding: chunked"),
        head("POST", "/nowhere", "Content-Length: 1000000"),  # refused, but its body is still on the way
        head("GET", "/docs", "Content-Length: 1000000"),
    ]
    slow += [connected(quick, begun[number % len(begun)]) for number in range(count)]
    try:
        watch = Watch()
        left, slowest_s = dict.fromkeys(slow), 0.0
        while left and watch.within(patience_s):
            began = time.monotonic()
            assert ask(quick, "GET", "/v1/server")[0] == 200
            slowest_s = max(slowest_s, time.monotonic() - began)
            for each in list(left):
                each.setblocking(False)
                with contextlib.suppress(ConnectionError, BlockingIOError):
                    each.send(b"x" if each in slow[:count] else b"1")  # always a little more
                try:
                    while each.recv(4096):
                        pass
                    left.pop(each)
                except BlockingIOError:
                    pass
                except ConnectionError:
                    left.pop(each)
        assert not left, f"{len(left)} of {len(slow)} are still connected"
        assert slowest_s < 0.5 * slack(), slowest_s
    finally:
        for each in slow:
            each.close()


def test_who_says_nothing_at_all_is_cut_too(quick: int) -> None:
    with connected(quick) as connection:
        assert b"408" in answer(connection, 20)


def test_a_reader_that_reads_nothing_is_cut(quick: int) -> None:
    with connected(quick, SO_RCVBUF=4096) as connection:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError, TimeoutError):
            while time.monotonic() - began < 30:
                connection.sendall(head("GET", "/openapi.json") * 20)
        assert time.monotonic() - began < 30


def test_small_answers_are_sent_at_once(quick: int) -> None:
    """Without TCP_NODELAY each answer on a kept connection waits 40 ms for an acknowledgement."""
    with connected(quick) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took = []
        for _ in range(20):
            began = time.monotonic()
            connection.sendall(head("GET", "/v1/server"))
            said = b""
            while not said.endswith(b"}"):
                said += connection.recv(4096)
            took.append(time.monotonic() - began)
        assert min(took[5:]) < 0.03
