"""Whoever stops listening gives everything back; not more than so many listen at a time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.core.view import Edit
from covey.open import open_engine
from covey.testing.until import until
from covey.web import asgi as app
from covey.web import http_protocol, readers, stream
from tests.kit.factories import python_task
from tests.kit.http_server import Served

from .process import ask, connected, head, open_files

WITHIN_S = 30


class Listeners:
    def __init__(self, db: str) -> None:
        self.engine = open_engine(db)
        self.job = self.engine.enqueue([python_task("m.f", "x" * 900_000)])[0].id
        self.served = Served(lambda: open_engine(db), socket=True)
        self.port = int(self.served.url.rpartition(":")[2])

    def settle(self) -> None:
        """Whatever is opened only once is open."""
        self.stir()
        for desk, threads in ((self.served.app._desk, app.THREADS), (self.served.app._readers, readers.THREADS)):
            together = threading.Barrier(threads)
            asked = [
                asyncio.run_coroutine_threadsafe(desk.ask(lambda _, each=together: each.wait(20)), self.served._loop)
                for _ in range(threads)
            ]
            assert sorted(each.result(20) for each in asked) == list(range(threads)), "every engine is open"
        with self.listen() as first:
            assert first.recv(100).startswith(b"HTTP/1.1 200")
            until(lambda: len(self.served.app._hub._ears) == 2, WITHIN_S)  # it listens for work and for ends
        until(lambda: not self.served.app._streams._open, WITHIN_S)
        self._base = self._held()

    def _held(self) -> tuple[int, int, int, int]:
        app = self.served.app
        counted = asyncio.run_coroutine_threadsafe(self._tasks(), self.served._loop).result(10)
        return len(app._streams._open), len(app._hub._pulses), counted, open_files()

    async def _tasks(self) -> int:
        return len(asyncio.all_tasks())

    def at_base(self) -> bool:
        """Slots, tasks and descriptors: nothing more than before anybody listened."""
        *held, files = self._held()
        *base, before = self._base
        # Threads may open the journal only now: fewer files than there are streams in the smallest crowd.
        return held <= base and files <= before + 4

    def listen(self, **options: int) -> socket.socket:
        return connected(self.port, head("GET", f"/v1/stream?job={self.job}"), **options)

    def stir(self) -> None:
        priority = self.engine.job(self.job).priority
        self.engine.edit(self.job, Edit(priority=priority + 1))

    def close(self) -> None:
        self.served.close()
        self.engine.close()


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proof: Callable[..., float]) -> Iterator[Listeners]:
    for module in (http_protocol, stream):
        monkeypatch.setattr(module, "STUCK_S", proof(1.0, 15.0))
    listeners = Listeners(str(tmp_path / "queue.db"))
    try:
        listeners.settle()
        yield listeners
    finally:
        listeners.close()


@pytest.mark.parametrize("ending", ["before the first byte", "midway", "by a reset"])
def test_listeners_that_leave_give_everything_back(
    listeners: Listeners, proof: Callable[[int, int], int], ending: str
) -> None:
    for _ in range(proof(40, 1000) // 20):
        crowd = [listeners.listen() for _ in range(20)]
        for each in crowd:
            if ending != "before the first byte":
                assert each.recv(100).startswith(b"HTTP/1.1 200")
            if ending == "by a reset":
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        until(lambda: len(listeners.served.app._streams._open) <= 60, WITHIN_S)
    until(listeners.at_base, WITHIN_S, f"back to base: {listeners._base}, {listeners._held()}")


def test_readers_that_freeze_give_everything_back(listeners: Listeners, proof: Callable[[int, int], int]) -> None:
    frozen = [listeners.listen(SO_RCVBUF=4096) for _ in range(proof(5, 90))]
    until(lambda: len(listeners.served.app._streams._open) == len(frozen), WITHIN_S)
    try:

        def cut() -> bool:
            with contextlib.suppress(Exception):
                listeners.stir()
            return not listeners.served.app._streams._open

        until(cut, WITHIN_S, "frozen readers are cut")
    finally:
        for each in frozen:
            each.close()
    until(listeners.at_base, WITHIN_S, f"back to base: {listeners._base}, {listeners._held()}")


def test_the_cap_is_a_503_and_a_place_that_is_free_is_given_again(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch, proof: Callable[[int, int], int]
) -> None:
    monkeypatch.setattr(stream, "MOST", most := proof(5, 100))
    crowd = [listeners.listen() for _ in range(most)]
    until(lambda: len(listeners.served.app._streams._open) == most, WITHIN_S)
    status, said = ask(listeners.port, "GET", f"/v1/stream?job={listeners.job}")
    assert status == 503
    assert b"too_many_streams" in said
    crowd.pop().close()
    until(lambda: len(listeners.served.app._streams._open) < most, WITHIN_S)
    crowd.append(listeners.listen())
    assert crowd[-1].recv(100).startswith(b"HTTP/1.1 200")
    for each in crowd:
        each.close()
    until(listeners.at_base, WITHIN_S)


def test_a_stream_of_jobs_ends_with_them(listeners: Listeners) -> None:
    with listeners.listen() as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        listeners.engine.cancel([listeners.job])
        said = b""
        while b"event: end" not in said:
            more = connection.recv(1 << 16)
            assert more
            said += more
    until(listeners.at_base, WITHIN_S)
    assert ask(listeners.port, "GET", "/v1/stream?job=nobody")[0] == 404
