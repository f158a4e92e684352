"""How many jobs one request may hold: what is too many, or too large, is refused before it is made into anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.core.bodies import MOST_JOBS, Complete, Enqueue, EnqueueJobs, SpawnAsk
from covey.core.endpoints import JSON, MSGPACK
from covey.core.model import MAX_PAYLOAD
from covey.core.turn import MAX_HELD, MAX_REPORTS
from covey.errors import InvalidInput, TooLarge
from covey.open import open_engine
from covey.remote.remote import Remote
from covey.web.large_bodies import unpacked
from covey.web.openapi import document
from covey.web.request import LARGE
from tests.kit import command

from .house import House
from .process import Running, answer, connected, head, running

MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "queue.db") as server:
        yield server


def filled(head: bytes, part: bytes, tail: bytes, size: int, between: bytes = b",") -> bytes:
    count = (size - len(head) - len(tail)) // (len(part) + len(between))
    return head + between.join([part] * count) + tail


def packed(part: bytes, size: int) -> bytes:
    """{"specs": [part, part, …]} in msgpack."""
    count = size // len(part)
    return b"\x81\xa5specs\xdd" + count.to_bytes(4, "big") + part * count


LOAN = b'"pool": 1, "fence": 1, '
BODIES: dict[str, tuple[str, str, Callable[[int], bytes], str]] = {  # path, content type, body, what is said
    "specs": ("specs", MSGPACK, lambda size: packed(b"\x81\xa4task\xa1x", size), f"specs: at most {MOST_JOBS:,}"),
    "specs-json": ("specs", JSON, lambda size: filled(b'{"specs":[', b'{"task":"x"}', b"]}", size), "specs: at most"),
    "jobs": ("", JSON, lambda size: filled(b'{"jobs":[', b"{}", b"]}", size), f"jobs: at most {MOST_JOBS:,} in one"),
    "lists": ("", JSON, lambda size: filled(b'{"jobs":[', b"[]", b"]}", size), "jobs: at most"),
    "spawned": ("1/spawn", JSON, lambda size: filled(b"{" + LOAN + b'"jobs":[', b"{}", b"]}", size), "jobs: at most"),
    "args": (
        "",
        JSON,
        lambda size: filled(b'{"jobs":[{"task":"x","args":[', b"{}", b"]}]}", size),
        "jobs: more than 1,000,000",
    ),
    "few-args": ("", JSON, lambda size: filled(b'{"jobs":[{"task":"x","args":[', b'"abc"', b"]}]}", size), "jobs[0]: "),
    "labels": (
        "specs",
        JSON,
        lambda size: b'{"specs":[{"task":"x","labels":{%s}}]}' % b",".join(b'"%07x":""' % n for n in range(size // 13)),
        "specs[0]: ",
    ),
    "result": ("1/complete", JSON, lambda size: filled(b"{" + LOAN + b'"result":[', b"{}", b"]}", size), "result: "),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_body_of_very_many_small_things_is_refused_and_costs_little_memory(
    server: Running, what: str, proof: Callable[..., int]
) -> None:
    path, kind, make, said = BODIES[what]
    body = make(proof(12, 56) * MIB)
    server.ask("POST", "/v1/jobs/find", {})  # its engines are open
    before = peak(server)
    lines = (f"Content-Length: {len(body)}", f"Content-Type: {kind}", "Connection: close")
    with connected(server.port, head("POST", f"/v1/jobs/{path}".rstrip("/"), *lines)) as connection:
        connection.sendall(body)
        told = answer(connection)
    assert told.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400")), told[:300]
    assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["message"].startswith(said)
    # What arrives is there up to three times: as it is put together, whole, and the part that is looked at.
    assert peak(server) - before <= 5 * len(body) + 20 * MIB


def peak(server: Running) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("way", ["jobs", "specs"])
def test_as_many_as_may_be_are_stored_and_one_more_is_refused_in_one_line(
    house: House, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one: Any = {"command": "x" * 30} if way == "jobs" else msgspec.to_builtins(command("x" * 30))
    path = "/v1/jobs" if way == "jobs" else "/v1/jobs/specs"
    before = house.engine.newest_id()
    said = house.ask("POST", path, {way: [one] * (MOST_JOBS + 1)})
    assert (said.status, said.code) == (413, "too_large")
    assert said.json["error"]["message"] == f"{way}: at most {MOST_JOBS:,} in one request; send them in parts"
    assert house.engine.newest_id() == before
    small: Any = {} if way == "jobs" else {"task": "x"}
    assert house.ask("POST", path, {way: [small] * (MOST_JOBS + 1)}).status == 413
    some = 20_000  # more than a small body
    made = house.ask("POST", path, {way: [one] * some}).json
    assert [job["id"] for job in made] == list(range(before + 1, before + some + 1))
    for name in ("Enqueue", "EnqueueJobs", "SpawnAsk"):
        found = document()["components"]["schemas"][name]["properties"]["specs" if name == "Enqueue" else "jobs"]
        assert found["maxItems"] == MOST_JOBS


def test_a_turn_lists_no_more_than_it_may_and_its_pool_hears_that_it_is_too_large(server: Running) -> None:
    """Told so, a pool sends its reports in parts."""
    for name, part, most in (("reports", b"\x93\x01\x01\xa7success", MAX_REPORTS), ("held", b"\x92\x00\x00", MAX_HELD)):
        count = 12 * MIB // len(part)
        turn = msgspec.msgpack.encode({"pool": 1, "database_id": "d", "number": 1})
        listed = b"\x84" + turn[1:] + msgspec.msgpack.encode(name) + b"\xdd" + count.to_bytes(4, "big") + part * count
        server.ask("POST", "/v1/jobs/find", {})
        before = peak(server)
        lines = (f"Content-Length: {len(listed)}", f"Content-Type: {MSGPACK}", "Connection: close")
        with connected(server.port, head("POST", "/v1/pools/1/turn", *lines)) as connection:
            connection.sendall(listed)
            told = answer(connection)
        assert told.startswith(b"HTTP/1.1 413"), told[:300]
        assert f'"{name}: at most {most:,} in one request; send them in parts"'.encode() in told
        assert peak(server) - before <= 5 * len(listed) + 20 * MIB


def test_a_client_says_so_before_anything_is_sent(tmp_path: Path) -> None:
    remote = Remote("http://127.0.0.1:9")
    with pytest.raises(TooLarge, match=f"{MOST_JOBS + 1:,} jobs in one enqueue, a server takes {MOST_JOBS:,}"):
        remote.enqueue([command()] * (MOST_JOBS + 1))
    remote.close()


@pytest.mark.parametrize("is_json", [True, False])
def test_a_large_body_is_understood_as_a_small_one_is(is_json: bool) -> None:
    odd = [
        {"command": 'echo "]}" \\ {[', "labels": {"ü": '\\"{'}},
        {"task": "t", "args": [{"a": [[], {}, "}{"]}, None, 1.5]},
        {},
    ]
    encode = msgspec.json.encode if is_json else msgspec.msgpack.encode
    for kind, value in (
        (EnqueueJobs, {"jobs": odd, "request": "r"}),
        (EnqueueJobs, {"jobs": []}),
        (SpawnAsk, {"pool": 1, "fence": 2, "jobs": odd, "relation": "after", "after": 3}),
        (Enqueue, {"specs": [msgspec.to_builtins(command('"]}[{'))] * 3}),
        (Enqueue, {"specs": []}),
        (Complete, {"pool": 1, "fence": 2, "result": odd, "stdout": "x"}),
        (Complete, {"pool": 1, "fence": 2}),
    ):
        found = unpacked(encode(value), kind, is_json=is_json)
        plain = msgspec.convert(value, kind)
        for name in kind.__struct_fields__:
            theirs = getattr(found, name)
            assert (list(theirs) if name == "jobs" else theirs) == getattr(plain, name), name


@pytest.mark.parametrize(
    "text",
    [
        b'{"jobs": [{} {}]}', b'{"jobs": [{},]}', b'{"jobs": [1, {}]}', b'{"jobs": [{}, 1]}', b'{"jobs": ["a"]}',
        b'{"jobs": {}}', b'{"jobs": null}', b'{"jobs": [{}', b'{"jobs": [[]]}', b'{"jobs": [{"a": 1]]}',
        b'{"jobs": [,{}]}',
        b'{"jobs": [{"a": "\xff"}]}', b'{"jobs": [{}], "what": 1}', b"{}", b"[]",
    ],
)  # fmt: skip
def test_what_is_no_list_of_jobs_is_refused_whatever_its_size(house: House, text: bytes) -> None:
    for body in (text, text + b" " * LARGE):
        said = house.ask("POST", "/v1/jobs", body)
        assert (said.status, said.code) == (400, "invalid_input"), said
        assert "\n" not in said.json["error"]["message"]


def test_a_job_may_have_all_its_arguments_and_not_many_more(house: House) -> None:
    text = "x" * (MAX_PAYLOAD - 20)
    assert house.ask("POST", "/v1/jobs", {"jobs": [{"task": "t", "args": [text]}]}).status == 200
    for args in ([text * 2], [text * 3]):
        assert house.ask("POST", "/v1/jobs", {"jobs": [{"task": "t", "args": args}]}).status == 413


def test_a_job_has_at_most_a_thousand_labels(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "queue.db"))
    engine.enqueue([command(labels={f"l{n}": "x" for n in range(1000)})])
    with pytest.raises(InvalidInput, match="labels: at most 1,000, got 1,001"):
        engine.enqueue([command(labels={f"l{n}": "x" for n in range(1001)})])
    engine.close()
