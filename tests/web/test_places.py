"""Somebody else's page may not ask, and nobody reaches us by somebody else's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.open import open_engine
from covey.web.auth import is_loopback
from tests.kit.http_server import Served

from .house import ROUTES, House, open_house
from .process import answer, connected

FOREIGN_PAGES = [
    [("sec-fetch-site", "cross-site")],
    [("sec-fetch-site", "same-site")],
    [("sec-fetch-site", "cross-site, same-origin")],
    [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
    [("origin", "http://evil.example")],
    [("origin", "null")],
    [("origin", "")],
    [("origin", "localhost")],
    [("origin", "http://localhost:1")],
    [("origin", "http://localhost.evil.example")],
    [("origin", "http://localhost"), ("origin", "http://evil.example")],
    [("origin", "http://evil.example"), ("origin", "http://localhost")],
    [("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")],
]
FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8765",
    "",
    " ",
    ":8765",
    "127.0.0.1.evil",
    "127.0.0.1.evil.example:8765",
    "localhost.evil.example",
    "localhost@evil.example",
    "evil.example#localhost",
    "localhost:80:80",
    "localhost:evil",
    "localhost/",
    "[::1",
    "[::1]evil",
    "[evil.example]",
    "10.0.0.1",
    "0.0.0.0",
    "2130706433",
    "127.1",
    "host.docker.internal",
    "localhost, evil.example",
]


def test_a_foreign_page_changes_nothing(house: House) -> None:
    before = house.version()
    for endpoint in ROUTES:
        path = house.example(endpoint).path
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
            for headers in FOREIGN_PAGES:
                said = house.ask(method, path, house.example(endpoint).body, headers=headers)
                assert (said.status, said.code) == (403, "forbidden"), (method, path, headers, said)
                assert "access-control-allow-origin" not in said.headers
    assert house.version() == before


def test_nor_on_a_path_that_is_not_there(house: House) -> None:
    assert house.ask("POST", "/nowhere", headers=FOREIGN_PAGES[0]).status == 403


@pytest.mark.parametrize(
    "headers",
    [(), [("origin", "http://localhost")], [("sec-fetch-site", "same-origin")], [("sec-fetch-site", "none")]],
)
def test_our_own_page_and_programs_may(house: House, headers: list[tuple[str, str]]) -> None:
    assert house.ask("POST", "/v1/queues/own/pause", {}, headers=headers).status == 200


def test_no_answer_may_be_read_framed_or_kept_by_another_page(house: House) -> None:
    for endpoint in ROUTES:
        said = house.visit(endpoint, headers=[("origin", "http://localhost")])
        assert said.headers["x-content-type-options"] == "nosniff"
        assert said.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in said.headers["content-security-policy"]
        assert not [name for name in said.headers if name.startswith("access-control")]


def test_nobody_reaches_any_route_by_another_name(house: House) -> None:
    before = house.version()
    for endpoint in ROUTES:
        for host in (*FOREIGN_HOSTS, None):
            said = house.visit(endpoint, host=host)
            assert (said.status, said.code) == (421, "wrong_host"), (endpoint.name, host, said)
        for second in ("localhost", "evil.example"):
            said = house.visit(endpoint, headers=[("host", second)])
            assert said.status == 421, (endpoint.name, second)
    assert house.version() == before


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:8765", "[::1]", "[::1]:8765", "box.example:80"]
)
def test_names_that_are_ours(tmp_path: Path, host: str) -> None:
    with open_house(tmp_path / "queue.db", names=["Box.example", ""]) as house:
        assert house.ask("GET", "/health", host=host).status == 200
        assert house.ask("GET", "/health", host="").status == 421


def test_a_server_for_other_machines_is_called_by_its_numbers(tmp_path: Path) -> None:
    """A page can give its own name our address, but it cannot call itself by a number."""
    with open_house(tmp_path / "queue.db", is_local=False, needs_token=True) as house:
        for host in ("192.168.1.7:8765", "[fe80::1]:8765", "host.docker.internal:8765"):
            assert house.ask("GET", "/health", host=host).status == 200, host
        for host in ("evil.example", "192.168.1.7.evil.example", "192.168.1", "3232235777"):
            assert house.ask("GET", "/health", host=host).status == 421, host


def test_which_addresses_only_this_machine_reaches() -> None:
    assert is_loopback(["127.0.0.1", "::1", "localhost", "127.3.2.1"])
    for wide in ("0.0.0.0", "::", "192.168.1.7", "box.example", ""):
        assert not is_loopback(["127.0.0.1", wide]), wide


ABSOLUTE = [  # (request line's target, Host) → whether that is us
    ("http://evil.example/v1/server", "localhost", False),
    ("http://evil.example:8765/v1/server", "127.0.0.1", False),
    ("HTTP://evil.example/v1/server", "localhost", False),
    ("https://evil.example/v1/server", "localhost", False),
    ("http://localhost@evil.example/v1/server", "localhost", False),
    ("http://evil.example", "localhost", False),
    ("http://evil.example?x", "localhost", False),
    ("http://localhost.evil.example/v1/server", "localhost", False),
    ("http://evil.example/v1/server", "evil.example", False),
    ("http://evil.example/v1/server", None, False),
    ("http://localhost/v1/server", None, False),
    ("//evil.example/v1/server", "localhost", False),
    ("*", "localhost", False),
    ("http://localhost/v1/server", "localhost", True),
    ("http://127.0.0.1:8765/v1/server", "localhost", True),
    ("http://[::1]:8765/v1/server", "localhost", True),
    ("http://localhost/v1/server", "evil.example", True),  # the header is to be ignored then
    ("/v1/server", "localhost", True),
]


def test_a_host_in_the_request_line_is_the_one_that_is_meant(tmp_path: Path) -> None:
    served = Served(lambda: open_engine(str(tmp_path / "queue.db")), socket=True)
    try:
        port = int(served.url.rpartition(":")[2])
        for target, host, is_ours in ABSOLUTE:
            lines = [f"GET {target} HTTP/1.1", "Connection: close"] + ([f"Host: {host}"] if host is not None else [])
            with connected(port, "\r\n".join([*lines, "", ""]).encode()) as connection:
                said = answer(connection)
            status = int(said.split(b" ", 2)[1])
            assert (status == 200) == is_ours, (target, host, said)
            assert status in (200, 400, 404, 421), (target, host, said)
            if "evil" in target and target.startswith("http"):
                assert status in (400, 421), (target, host, said)
            assert is_ours or b"database_id" not in said
        body = b'{"for_s": 1}'
        lines = [
            "POST http://evil.example/v1/queues/own/pause HTTP/1.1",
            "Host: localhost",
            "Connection: close",
            f"Content-Length: {len(body)}",
            "Upgrade: websocket",
        ]
        with connected(port, "\r\n".join([*lines, "", ""]).encode() + body) as connection:
            assert answer(connection).startswith(b"HTTP/1.1 421")
    finally:
        served.close()
