"""Whoever only reads has threads of his own, a limit and a bounded line: nobody who works waits for him."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from covey import __version__
from covey.core.endpoints import ENDPOINTS
from covey.engine.engine import Engine
from covey.errors import StoreError
from covey.open import open_engine
from covey.testing.until import until
from covey.web import api, asgi, readers
from covey.web.api import health as probes
from tests.kit.factories import command
from tests.kit.http_server import Served

from ..store.test_limit import endless
from .house import CLOSED, House, Said, open_house

SHORT = {"server", "job", "output", "settings", "wait_for"}  # some rows that are named, however many there are
WORK = ("enqueue_jobs", "enqueue", "claim", "heartbeat", "complete", "turn", "wait", "lost_pools", "cancel", "pause")


def test_every_route_that_only_reads_is_short_or_has_threads_of_its_own() -> None:
    assert {each.name for each in CLOSED if each.role == "read" and not each.looks} == SHORT
    assert not [each.name for each in CLOSED if each.looks and each.role != "read"]


def later(house: House, *asked: Any) -> Callable[[], Said]:
    """The answer, when it is there."""
    said: list[Said] = []
    thread = threading.Thread(target=lambda: said.append(house.ask(*asked)))
    thread.start()

    def answer() -> Said:
        thread.join(30)
        return said[0]

    return answer


@contextmanager
def held(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every thread for readers is busy."""
    let_go = threading.Event()

    def hold(engine: Engine, call: Any) -> list[Any]:
        assert let_go.wait(60)
        return []

    monkeypatch.setitem(api.VERBS, "status", hold)
    asked = [later(house, "GET", "/v1/status") for _ in range(readers.THREADS)]
    try:
        until(house.served.app._readers._free.locked, 20, "all are taken")
        yield
    finally:
        let_go.set()
        assert {each().status for each in asked} == {200}


def test_who_works_is_answered_while_readers_hold_every_thread_that_readers_have(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(house, monkeypatch):
        for name in WORK:
            assert house.visit(ENDPOINTS[name]).status == 200, name
        for name in SHORT:
            assert house.visit(ENDPOINTS[name]).status == 200, name
        assert house.ask("GET", "/livez").json == {"status": "alive", "version": __version__}
        assert house.ask("GET", "/readyz").json == {"status": "ready", "version": __version__, "reason": None}
        assert house.ask("GET", "/health").json == {"status": "ready", "version": __version__}
        assert house.ask("GET", "/v1/stream").body.startswith(b"event: queues")


def test_only_so_many_readers_wait_and_the_next_is_told_to_come_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MOST_WAITING", 3)
    with held(house, monkeypatch):
        waiting = [later(house, "GET", "/v1/queues") for _ in range(3)]
        until(lambda: house.served.app._readers._waiting == 3, 20)
        said = house.ask("GET", "/v1/jobs")
        assert (said.status, said.code, said.headers["retry-after"]) == (503, "busy", "1")
    assert {each().status for each in waiting} == {200}
    assert house.served.app._readers._waiting == 0


def test_nobody_is_refused_as_long_as_a_thread_is_free(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come in one moment."""
    monkeypatch.setattr(readers, "MOST_WAITING", 0)
    ask = house.served.app._readers.ask

    async def together() -> list[int]:
        return await asyncio.gather(*(ask(lambda engine, number=number: number) for number in range(readers.THREADS)))  # type: ignore[misc]

    for _ in range(20):
        asked = asyncio.run_coroutine_threadsafe(together(), house.served._loop)
        assert asked.result(20) == list(range(readers.THREADS))
        until(lambda: house.served.app._readers._free._value == readers.THREADS, 20)


def test_a_reader_whose_turn_does_not_come_is_told_to_come_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PATIENCE_S", 0.1)
    with held(house, monkeypatch):
        said = house.ask("GET", "/v1/jobs")
        assert (said.status, said.code, said.headers["retry-after"]) == (503, "busy", "1")
    assert house.ask("GET", "/v1/jobs").status == 200


def test_whoever_hangs_up_while_he_waits_leaves_the_line(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(house, monkeypatch):
        told = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "path": "/v1/jobs", "query_string": b"", "headers": told}
        words = [{"type": "http.request", "body": b"", "more_body": False}]
        hung_up = threading.Event()

        async def receive() -> Any:
            if words:
                return words.pop()
            await asyncio.to_thread(hung_up.wait, 30)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError("nobody is there")

        asked = asyncio.run_coroutine_threadsafe(house.served.app(scope, receive, send), house.served._loop)
        until(lambda: house.served.app._readers._waiting == 1, 20)
        hung_up.set()
        asked.result(20)
        until(lambda: house.served.app._readers._waiting == 0, 20)
    until(lambda: house.served.app._readers._free._value == readers.THREADS, 20, "every place is free again")
    assert house.ask("GET", "/v1/jobs").status == 200


@pytest.mark.parametrize("backend", ["file", "postgres"])
def test_a_question_that_takes_too_long_is_a_504_that_says_what_to_do(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both stores, with a statement that would never end; and the thread answers others afterwards."""
    monkeypatch.setattr(readers, "LIMIT_S", 0.3)
    monkeypatch.setitem(api.VERBS, "status", lambda engine, call: endless(engine))
    served = Served(lambda: open_engine(url), socket=False)
    try:
        remote = served.connect()
        for _ in range(2 * readers.THREADS):
            answer = remote._transport.request("GET", "/v1/status", None, {}, 30)
            assert answer.status == 504
            assert b'"code":"too_long"' in answer.body
            assert b"took longer than 0.3 s" in answer.body
            assert b"narrow it" in answer.body
        remote.enqueue([command()])
        assert [queue.counts for queue in remote.queues()] == [{"pending": 1}]
        remote.close()
    finally:
        served.close()


def test_a_wait_for_thousands_of_jobs_is_answered_when_the_last_has_ended(house: House) -> None:
    ids = [made.id for made in house.engine.enqueue([command() for _ in range(2500)])]
    answer = later(house, "POST", "/v1/jobs/wait", {"ids": ids, "timeout_s": 30})
    one = later(house, "POST", "/v1/jobs/wait", {"ids": [house.waiting["own"]], "timeout_s": 30})
    until(lambda: len(house.served.app._hub._watched) == 2, 20)
    house.engine.cancel([house.waiting["own"]])
    assert one().json == {"ended": True}
    house.engine.cancel(ids)
    assert answer().json == {"ended": True}


# ── probes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_lives_and_is_not_ready_when_its_store_hangs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "READY_S", 0.1)
    let_go = threading.Event()
    monkeypatch.setitem(api.VERBS, "server", lambda engine, call: let_go.wait(60))
    asked = [later(house, "GET", "/v1/server") for _ in range(asgi.THREADS)]
    try:
        until(lambda: house.ask("GET", "/readyz").status == 503, 20)
        said = house.ask("GET", "/readyz")
        assert said.json["reason"] == "the database did not answer within 0.1 s"
        assert house.ask("GET", "/livez").status == 200
    finally:
        let_go.set()
        assert {each().status for each in asked} == {200}
    monkeypatch.setattr(probes, "READY_S", 30.0)
    assert house.ask("GET", "/readyz").status == 200


def test_why_a_server_is_not_ready_names_neither_path_nor_address(tmp_path: Path) -> None:
    def fail() -> Any:
        raise StoreError(f"{tmp_path}/queue.db on postgresql://me:secret@host is gone")

    with open_house(tmp_path / "queue.db", needs_token=True) as house:
        house.served.app._desk._open = fail
        said = house.ask("GET", "/readyz")
        assert said.status == 503
        assert said.json == {
            "status": "unavailable",
            "version": __version__,
            "reason": "the database cannot be used (store); the server's log says why",
        }
        assert house.ask("GET", "/livez").json == {"status": "alive", "version": __version__}


def test_what_speaks_against_work_although_the_store_answers_is_the_reason(
    guarded: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "unready", lambda engine: "the disk is full")
    said = guarded.ask("GET", "/readyz")
    assert (said.status, said.json["reason"]) == (503, "the disk is full")
    assert guarded.ask("GET", "/health").status == 503
