"""One look for all streams, however many there are: counted in statements; who sees what, and who waits for whom."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.core.view import Edit
from covey.engine.engine import Engine
from covey.open import open_engine
from covey.store import statements
from covey.store.sqlite.database import Sqlite
from covey.testing.until import until
from covey.web import stream_board
from tests.kit.factories import command

from ..store.test_limit import endless
from .house import House, open_house
from .process import connected, head, running

COUNTS = statements.load("sqlite")["counts"]
VIEW = statements.load("sqlite")["view"]
TOKENS = statements.load("sqlite")["tokens"]


class Stream:
    """One that is read as it comes, by a thread of the server's loop; `hold` makes its reader stop reading."""

    def __init__(self, house: House, target: str = "/v1/stream", token: str | None = None) -> None:
        self.house = house
        self.events: list[tuple[str, Any]] = []
        self.status = 0
        self._reads, self._leaves = threading.Event(), threading.Event()
        self._reads.set()
        path, _, query = target.partition("?")
        headers = [(b"host", b"localhost")] + ([(b"authorization", f"Bearer {token}".encode())] if token else [])
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers}
        self._words = [{"type": "http.request", "body": b"", "more_body": False}]
        app, loop = house.served.app, house.served._loop
        self._served = asyncio.run_coroutine_threadsafe(app(scope, self._receive, self._send), loop)

    async def _receive(self) -> Any:
        if self._words:
            return self._words.pop()
        while not self._leaves.is_set():
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        while not self._reads.is_set():
            await asyncio.sleep(0.01)
        self.status = message.get("status", self.status)
        for part in message.get("body", b"").split(b"\n\n"):
            name, _, data = part.partition(b"\ndata: ")
            if name.startswith(b"event: "):
                self.events.append((name[7:].decode(), json.loads(data)))

    def hold(self) -> None:
        self._reads.clear()

    def read_on(self) -> None:
        self._reads.set()

    @property
    def is_open(self) -> bool:
        return not self._served.done()

    def said(self, name: str) -> list[Any]:
        return [data for each, data in list(self.events) if each == name]

    def leave(self) -> None:
        self._leaves.set()
        self._reads.set()
        self._served.result(20)


@pytest.fixture
def opened(house: House, guarded: House) -> Iterator[Callable[..., Stream]]:
    """Opens streams of the house that is given."""
    streams: list[Stream] = []

    def open(of: House, *args: Any, **options: Any) -> Stream:
        streams.append(Stream(of, *args, **options))
        return streams[-1]

    yield open
    for stream in streams:
        stream.leave()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[House]:
    with open_house(tmp_path / "guarded.db", needs_token=True) as guarded:
        yield guarded


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """How often a statement that begins so was asked, by whomever."""
    texts: list[str] = []
    real = Sqlite.query

    def query(self: Sqlite, sql: str, params: Any) -> Any:
        texts.append(sql)
        return real(self, sql, params)

    monkeypatch.setattr(Sqlite, "query", query)
    return lambda text: sum(each.startswith(text) for each in list(texts))


def pending(stream: Stream, queue: str = "own") -> int:
    """As it was shown last."""
    (shown,) = [view for view in stream.said("queues")[-1] if view["name"] == queue]
    return int(shown["counts"].get("pending", 0))


Opened = Callable[..., Stream]


def test_twenty_streams_are_one_look_and_none_while_nobody_writes(
    house: House, opened: Opened, asked: Callable[[str], int]
) -> None:
    streams = [opened(house) for _ in range(20)]
    until(lambda: all(stream.said("queues") for stream in streams), 30)
    looks = house.served.app._boards[0]
    before = looks.begun
    until(lambda: looks.begun >= before + 2, 30)
    assert asked(COUNTS) == 1
    house.engine.enqueue([command(queue="own")])
    until(lambda: all(pending(stream) == 2 for stream in streams), 30)
    assert asked(COUNTS) == 2
    assert [len(stream.said("queues")) for stream in streams] == [2] * 20


def test_a_job_that_twenty_follow_is_looked_at_once(house: House, opened: Opened, asked: Callable[[str], int]) -> None:
    job = house.waiting["own"]
    streams = [opened(house, f"/v1/stream?job={job}") for _ in range(20)]
    until(lambda: all(stream.said("job") for stream in streams), 30)
    looks = house.served.app._boards[1]
    until(lambda: looks.written > 20 or looks.written == looks.begun, 30)
    before, begun = asked(VIEW), looks.begun
    house.engine.edit(job, Edit(priority=77))
    until(lambda: all(stream.said("job")[-1]["priority"] == 77 for stream in streams), 30)
    assert asked(VIEW) - before <= looks.begun - begun + 1
    house.engine.cancel([job])
    until(lambda: all(stream.said("end") for stream in streams), 30)
    assert {stream.said("job")[-1]["state"] for stream in streams} == {"cancelled"}


def test_a_look_that_was_dear_is_not_soon_repeated(
    house: House, opened: Opened, asked: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the counting took, it is so much that its rest is not over in this test. Events go on meanwhile."""
    stream = opened(house)
    until(lambda: stream.said("queues"), 30)
    house.served.app._boards[0]._next_count += 3600
    house.engine.cancel([house.waiting["own"]])
    until(lambda: stream.said("event")[-1][0]["job_id"] == house.waiting["own"], 30)
    assert asked(COUNTS) == 1
    assert pending(stream) == 1
    late = opened(house)
    until(lambda: late.said("queues"), 30)
    assert asked(COUNTS) == 1
    house.served.app._boards[0]._next_count = 0
    until(lambda: pending(stream) == pending(late) == 0, 30)


def test_counting_takes_a_twentieth_of_the_time_at_most(tmp_path: Path) -> None:
    with open_house(tmp_path / "queue.db") as house:
        looks = house.served.app._boards[0]
        engine = open_engine(str(tmp_path / "queue.db"))
        began = time.monotonic()
        looks._count(engine)
        assert 0 < looks._counting_s <= (looks._next_count - began) / 20
        engine.close()


def test_queues_that_cannot_be_counted_in_time_are_an_error_and_not_tried_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def never(engine: Engine) -> None:
        tried.append(1)
        endless(engine)

    monkeypatch.setattr(stream_board, "LIMIT_S", 0.2)
    monkeypatch.setattr(stream_board, "REST", 10_000)
    monkeypatch.setattr(Engine, "counts", never)
    with open_house(tmp_path / "queue.db") as house:
        looks = house.served.app._boards[0]
        for number in range(1, 4):
            said = house.ask("GET", "/v1/stream")
            assert (said.status, said.code) == (504, "too_long")
            until(lambda: looks._looking.done(), 30)  # nobody watches any more, so the next one has a look of its own
            assert looks.begun == number
        assert len(tried) == 1


def test_a_slow_reader_gets_the_newest_and_nobody_waits_for_it(house: House, opened: Opened) -> None:
    job = house.waiting["own"]
    slow, quick = (opened(house, f"/v1/stream?job={job}") for _ in range(2))
    until(lambda: slow.said("job") and quick.said("job"), 30)
    slow.hold()
    for priority in range(1, 6):
        house.engine.edit(job, Edit(priority=priority))
        until(lambda wanted=priority: quick.said("job")[-1]["priority"] == wanted, 30)  # type: ignore[misc]
    assert len(slow.said("job")) == 1
    slow.read_on()
    until(lambda: slow.said("job")[-1]["priority"] == 5, 30)
    # What it was about to be sent when it stopped reading, and the newest: nothing of what came between.
    assert [each["priority"] for each in slow.said("job")] in ([0, 1, 5], [0, 5])


def test_a_token_for_some_queues_follows_these_queues_and_no_event(guarded: House, opened: Opened) -> None:
    all_of_it = opened(guarded, token=guarded.token("read"))
    some = [opened(guarded, token=guarded.token("read", "own")) for _ in range(2)]
    until(lambda: all(stream.said("queues") for stream in (all_of_it, *some)), 30)
    guarded.engine.enqueue([command(queue="own"), command(queue="other")])
    until(lambda: all(pending(stream) == 2 for stream in (all_of_it, *some)), 30)
    for stream in some:
        assert {view["name"] for shown in stream.said("queues") for view in shown} == {"own"}
        assert not stream.said("event")
    assert {view["name"] for view in all_of_it.said("queues")[-1]} == {"own", "other"}


def test_a_job_that_moves_to_another_queue_is_gone_for_who_may_not_see_that(guarded: House, opened: Opened) -> None:
    job = guarded.waiting["own"]
    target = f"/v1/stream?job={job}"
    limited = opened(guarded, target, token=guarded.token("read", "own"))
    free = opened(guarded, target, token=guarded.token("read"))
    until(lambda: limited.said("job") and free.said("job"), 30)
    guarded.engine.edit(job, Edit(queue="other"))
    until(lambda: limited.said("end"), 30)
    assert limited.said("job")[-1] == {"ref": str(job), "state": "removed"}
    until(lambda: free.said("job")[-1]["queue"] == "other", 30)
    assert free.is_open


def test_a_revoked_token_ends_its_streams_and_no_others(guarded: House, opened: Opened) -> None:
    bad, good = guarded.token("read"), guarded.token("read")
    ending = [opened(guarded, token=bad), opened(guarded, f"/v1/stream?job={guarded.waiting['own']}", token=bad)]
    staying = opened(guarded, token=good)
    until(lambda: all(stream.events for stream in (*ending, staying)), 30)
    guarded.engine.revoke_token(1)
    until(lambda: not any(stream.is_open for stream in ending), 30)
    assert all("revoked" in stream.said("error")[-1]["error"]["message"] for stream in ending)
    assert staying.is_open


def test_a_hundred_who_ask_in_one_moment_read_the_tokens_once(guarded: House, asked: Callable[[str], int]) -> None:
    gatekeeper = guarded.served.app._gatekeeper
    gatekeeper._read_at = -7200.0

    async def all_at_once() -> None:
        await asyncio.gather(*(gatekeeper._read(3600.0) for _ in range(100)))

    asyncio.run_coroutine_threadsafe(all_at_once(), guarded.served._loop).result(30)
    assert asked(TOKENS) == 1


def test_an_unusable_store_ends_streams_with_an_error_and_the_next_one_finds_it_again(
    house: House, opened: Opened
) -> None:
    stream = opened(house)
    until(lambda: stream.said("queues"), 30)
    away = house.db.with_name("away.db")
    house.db.rename(away)
    until(lambda: not stream.is_open, 30)
    assert stream.said("error")[-1]["error"]["code"] == "store"
    away.rename(house.db)
    until(lambda: house.ask("GET", "/v1/stream").status == 200, 30)


def test_streams_end_by_themselves_when_the_server_stops_and_no_new_one_begins(house: House, opened: Opened) -> None:
    """Else it would wait for them until its patience is over."""
    streams = [opened(house), opened(house, f"/v1/stream?job={house.waiting['own']}")]
    until(lambda: all(stream.events for stream in streams), 30)
    house.served._loop.call_soon_threadsafe(house.served.app.stop_waiting)
    until(lambda: not any(stream.is_open for stream in streams), 30)
    assert not any(stream.said("error") for stream in streams)
    assert house.ask("GET", "/v1/stream").status == 503


def test_a_server_that_stops_ends_its_streams_in_good_order(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "queue.db"))
    job = engine.enqueue([command()])[0].id
    with running(tmp_path / "queue.db") as server:
        streams = [connected(server.port, head("GET", f"/v1/stream{query}")) for query in ("", f"?job={job}")]
        said = [b"", b""]
        for place, connection in enumerate(streams):
            while b"data: " not in said[place]:
                said[place] += connection.recv(1 << 16)
        assert server.stop() == 0
        for place, connection in enumerate(streams):
            while more := connection.recv(1 << 16):
                said[place] += more
            connection.close()
    assert all(each.endswith(b"0\r\n\r\n") for each in said), said
    engine.close()
