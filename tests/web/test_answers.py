"""What is said when something is wrong: JSON with a code and a sentence, always. What is open says little."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from covey import __version__
from covey.core.endpoints import ENDPOINTS
from covey.core.model import MAX_PAYLOAD
from covey.errors import StoreError
from covey.store.sqlite.database import Sqlite
from covey.web import api
from covey.web.api import health as probes

from .house import ROUTES, House, open_house

WRONG: list[tuple[str, str, Any, list[tuple[str, str]], int, str]] = [
    ("GET", "/nowhere", None, [], 404, "not_found"),
    ("GET", "/", None, [], 404, "not_found"),
    ("GET", "/v1/jobs/", None, [], 404, "not_found"),
    ("GET", "/v1/jobs/77777", None, [], 404, "not_found"),
    ("DELETE", "/v1/jobs", None, [], 405, "method_not_allowed"),
    ("BREW", "/v1/jobs", None, [], 405, "method_not_allowed"),
    ("HEAD", "/v1/stream", None, [], 405, "method_not_allowed"),
    ("POST", "/v1/jobs", b"<job/>", [("content-type", "text/xml")], 415, "unsupported_media_type"),
    ("POST", "/v1/jobs", b"{", [], 400, "invalid_input"),
    ("POST", "/v1/jobs", b"", [], 400, "invalid_input"),
    ("POST", "/v1/jobs", b"\xff\xfe", [], 400, "invalid_input"),
    ("POST", "/v1/jobs", b'{"jobs": []} extra', [], 400, "invalid_input"),
    ("POST", "/v1/jobs", b'{"jobs": [], "jibs": []}', [], 400, "invalid_input"),
    ("POST", "/v1/jobs", b'{"jobs": [{"command": "\\ud800"}]}', [], 400, "invalid_input"),
    ("POST", "/v1/jobs", b"[" * 10_000, [], 400, "invalid_input"),
    ("POST", "/v1/jobs", b'{"jobs":[{"task":"t","args":' + b"[" * 10_000 + b"]" * 10_000 + b"}]}", [], 400, ""),
    ("POST", "/v1/jobs", b"\xc1", [("content-type", "application/msgpack")], 400, "invalid_input"),
    ("POST", "/v1/jobs", b"\x91" * 10_000, [("content-type", "application/msgpack")], 400, "invalid_input"),
    ("GET", "/v1/jobs?limit=many", None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs?limit=0", None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs?limt=5", None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs?state=happy", None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs?before=99999999999999999999", None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs?queue=%ff", None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs/%ff", None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs?" + "&".join(f"a{n}=1" for n in range(2000)), None, [], 400, "invalid_input"),
    ("GET", "/v1/jobs?limit=5&limit=6", None, [], 400, "invalid_input"),
    ("GET", "/v1/server?x=1", None, [], 400, "invalid_input"),
    ("GET", "/v1/stream?" + "&".join(f"job={n}" for n in range(200)), None, [], 400, "invalid_input"),
    ("PUT", "/v1/config/no_such", {"value": "1"}, [], 400, "invalid_input"),
    ("POST", "/v1/jobs/claim?wait=nan", {}, [], 400, "invalid_input"),
    ("POST", "/v1/jobs/claim?wait=1e9", {}, [], 400, "invalid_input"),
]


@pytest.mark.parametrize(("method", "target", "body", "headers", "status", "code"), WRONG)
def test_an_error_is_json_with_a_code_and_a_sentence(
    house: House, method: str, target: str, body: Any, headers: list[tuple[str, str]], status: int, code: str
) -> None:
    said = house.ask(method, target, body, headers=headers)
    assert said.status == status, said
    assert said.headers["content-type"] == "application/json"
    if method != "HEAD":
        assert said.code == (code or said.code)
    if status == 405:
        assert said.headers["allow"]


@pytest.mark.parametrize("text", ["\\ud800", "\\udce9", "a\\uD800b\\uDC00", "\\ude00\\ud83d"])
@pytest.mark.parametrize(
    "body", ['{"command": "%s"}', '{"command": "x", "env": {"%s": "1"}}', '{"task": "t", "args": [{"a": "%s"}]}']
)
def test_half_a_character_is_named_as_that_wherever_it_is(house: House, text: str, body: str) -> None:
    said = house.ask("POST", "/v1/jobs", f'{{"jobs": [{body % text}]}}'.encode())
    assert said.status == 400
    assert said.json["error"]["message"] == "the body is not what enqueue_jobs takes: a lone surrogate is not text"


def test_a_pair_of_surrogates_is_a_character(house: House) -> None:
    body = b'{"jobs": [{"command": "echo \\ud83d\\ude00", "key": "k\\ud83d\\ude00"}]}'
    (made,) = house.ask("POST", "/v1/jobs", body).json
    assert house.ask("GET", f"/v1/jobs/{made['id']}").json["command"] == "echo 😀"
    broken = house.ask("POST", "/v1/jobs", body[:-2])
    assert (broken.status, "surrogate" in broken.json["error"]["message"]) == (400, False)


def test_a_head_request_is_answered_with_the_head_alone(house: House) -> None:
    said = house.ask("HEAD", "/v1/server")
    assert (said.status, said.body) == (200, b"")
    assert int(said.headers["content-length"]) > 0


def test_what_breaks_in_us_is_not_told_to_others(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("/secret/path and password")

    monkeypatch.setitem(api.VERBS, "server", broken)
    said = house.ask("GET", "/v1/server")
    assert (said.status, said.code) == (500, "internal")
    assert b"secret" not in said.body


# ── /health ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_health_says_version_and_readiness_and_nothing_else(guarded: House) -> None:
    said = guarded.ask("GET", "/health")
    assert (said.status, said.json) == (200, {"status": "ready", "version": __version__})
    assert not [name for name in said.headers if name in ("server", "date", "via", "x-powered-by")]


def test_health_is_unavailable_when_the_store_cannot_be_used(tmp_path: Path) -> None:
    with open_house(tmp_path / "queue.db") as house:
        (tmp_path / "queue.db").rename(tmp_path / "away.db")
        house.served._open = None  # type: ignore[assignment]
        closed = Broken(house)
        said = closed.ask("GET", "/health")
        assert (said.status, said.json) == (503, {"status": "unavailable", "version": __version__})
        (tmp_path / "away.db").rename(tmp_path / "queue.db")


def Broken(house: House) -> House:
    def fail() -> Any:
        raise StoreError(f"{house.db} is gone")

    for desk in (house.served.app._desk, house.served.app._readers):
        desk._open = fail
    return house


def test_health_does_not_wait_for_a_store_that_hangs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "READY_S", 0.1)
    let_go = threading.Event()
    loop, desk = house.served._loop, house.served.app._desk
    busy = [asyncio.run_coroutine_threadsafe(desk.ask(lambda engine: let_go.wait(20)), loop) for _ in range(4)]
    said = house.ask("GET", "/health")
    let_go.set()
    assert [each.result(10) for each in busy] == [True] * 4
    assert (said.status, said.json["status"]) == (503, "unavailable")


def test_an_unusable_store_is_a_503_everywhere(house: House) -> None:
    Broken(house)
    for name in ("server", "queues", "status", "settings", "list_jobs"):
        said = house.visit(ENDPOINTS[name])
        assert (said.status, said.code) == (503, "store"), name


# ── the event loop never waits for a disk ───────────────────────────────────────────────────────────────────────────


def test_no_route_asks_the_store_on_the_event_loop(guarded: House, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = guarded.token("admin")
    asked: list[str] = []
    wrong: list[str] = []

    def guard(name: str) -> None:
        real = getattr(Sqlite, name)

        def checked(self: Any, *args: Any, **options: Any) -> Any:
            asked.append(name)
            if threading.current_thread().name == "test-server":
                wrong.append(f"{name} {args[:1]}")
            return real(self, *args, **options)

        monkeypatch.setattr(Sqlite, name, checked)

    for name in ("query", "queries", "transaction", "snapshot", "express", "also", "execute_many", "take_ids", "ring"):
        guard(name)
    for endpoint in ROUTES:
        guarded.furnish()
        said = guarded.visit(endpoint, token=admin)
        assert said.status == 200, (endpoint.name, said)
    assert len(asked) > len(ROUTES)
    assert not wrong


def test_the_guard_above_would_notice(house: House) -> None:
    """The planted bug: an engine that is asked where the loop runs is found."""

    async def ask_here() -> str:
        house.engine.settings()
        return threading.current_thread().name

    assert asyncio.run_coroutine_threadsafe(ask_here(), house.served._loop).result(5) == "test-server"


# ── A19 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def payload(size: int) -> dict[str, Any]:
    """A job whose arguments are so many bytes of JSON when they are stored."""
    frame = len('[["",{}]]') - len('"",{}') + len('""') + len(",{}")
    text = "x" * (size - frame)
    return {"jobs": [{"task": "m.f", "args": [text]}]}


def test_a_payload_at_the_limit_is_stored_and_one_byte_more_is_not(house: House) -> None:
    before = house.version()
    over = house.ask("POST", "/v1/jobs", payload(MAX_PAYLOAD + 1))
    assert (over.status, over.code) == (413, "too_large")
    two = {"jobs": [{"command": "true"}, *payload(MAX_PAYLOAD + 1)["jobs"]]}
    assert house.ask("POST", "/v1/jobs", two).status == 413
    spec = {"task": "m.f", "args": '"' + "x" * (MAX_PAYLOAD - 1) + '"'}
    assert house.ask("POST", "/v1/jobs/specs", {"specs": [spec]}).status == 413
    assert house.version() == before
    (made,) = house.ask("POST", "/v1/jobs", payload(MAX_PAYLOAD)).json
    ((size,),) = house._watch.query("SELECT length(args) FROM payloads WHERE job_id = :id", {"id": made["id"]})
    assert size == MAX_PAYLOAD
    spec["args"] = '"' + "x" * (MAX_PAYLOAD - 2) + '"'
    assert house.ask("POST", "/v1/jobs/specs", {"specs": [spec]}).status == 200


def test_a_deep_value_that_was_taken_can_be_given_back(house: House) -> None:
    """Whatever is accepted must not make a page of jobs unreadable."""
    for depth in (50, 200, 400, 900, 1000, 2000, 5000):
        body = b'{"jobs":[{"task":"t","args":[' + b"[" * depth + b"]" * depth + b"]}]}"
        said = house.ask("POST", "/v1/jobs", body)
        assert said.status in (200, 400), (depth, said)
        assert house.ask("GET", "/v1/jobs").status == 200, depth
        job, pool, fence = house.claimed("own")
        done = b'{"pool":%d,"fence":%d,"result":' % (pool, fence) + b"[" * depth + b"]" * depth + b"}"
        assert house.ask("POST", f"/v1/jobs/{job}/complete", done).status in (200, 400)
        assert house.ask("GET", "/v1/jobs").status == 200, depth
