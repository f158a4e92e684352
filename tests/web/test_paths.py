"""No name, key or number leads to a file outside, neither as it is asked nor as it was stored."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from covey.core.endpoints import ENDPOINTS

from .house import ROUTES, House

SECRET = "not for your eyes"
CLIMBS = [
    "..",
    "../../secret",
    "..%2f..%2fsecret",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fsecret",
    "%252e%252e%252fsecret",
    "..%5csecret",
    "%00",
    "1%00.out",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "~root",
    "file:%2f%2f%2fetc%2fpasswd",
    "1.0.out",
    "%c0%ae%c0%ae%2fsecret",
    "%ff%fe",
    "%",
    "%zz",
    "-1",
    "1e3",
    "0x1",
    "%d9%a1",
    "9" * 400,
    "a" * 5000,
    ".",
    "",
]


@pytest.fixture
def opened(house: House, tmp_path: Path) -> Iterator[set[str]]:
    """Files of this test's directory and of the system that were opened while the server answered."""
    (tmp_path / "secret").write_text(SECRET)
    found: set[str] = set()
    listening = [True]

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if listening and event in ("open", "os.remove", "os.rename", "os.mkdir", "os.listdir"):
            found.update(os.fsdecode(path) for path in arguments[:2] if isinstance(path, str | bytes))

    sys.addaudithook(hear)
    yield found
    listening.clear()


def outside(house: House, opened: set[str]) -> set[str]:
    """Whatever is neither the database nor beside it, nor Python's own."""
    ours = (str(house.db), sys.prefix, sys.base_prefix, "/proc/", "/dev/", str(Path.cwd()))
    mine = str(house.db.parent)  # this test looks into it
    return {path for path in opened if len(path) > 3 and not path.startswith(ours) and path != mine}


def test_no_name_in_a_path_leads_outside(house: House, opened: set[str]) -> None:
    before = house.version()
    for endpoint in ROUTES:
        if "{" not in endpoint.path or endpoint.name in ("set_queue", "pause", "resume"):
            continue
        for climb in CLIMBS:
            head, _, rest = endpoint.path.partition("{")
            target = head + climb + rest.partition("}")[2]
            said = house.ask(endpoint.method, target, house.example(endpoint).body)
            if said.status == 200:  # such a path is another route's: /v1/jobs/ and no name behind it
                assert SECRET not in said.body.decode(), (target, said)
                assert endpoint.method == "GET", (endpoint.name, target, said)
            else:
                assert 400 <= said.status < 500, (endpoint.name, target, said)
                assert said.code
    assert house.version() == before
    assert not outside(house, opened)


def test_names_of_queues_are_names_and_nothing_else(house: House, opened: set[str], tmp_path: Path) -> None:
    files = sorted(os.listdir(tmp_path))
    for climb in CLIMBS:
        for verb, body in (("PATCH", {"concurrency": 1}), ("POST", {})):
            target = f"/v1/queues/{climb}" + ("/pause" if verb == "POST" else "")
            assert 200 <= house.ask(verb, target, body).status < 500, target
    assert sorted(os.listdir(tmp_path)) == files
    assert not outside(house, opened)


STORED = ["../../secret", "/etc/passwd", "..%2fsecret", "1.0.out", "a/../../secret", "$(cat secret)", "%00", "~root"]


def test_what_was_stored_leads_nowhere_either(house: House, opened: set[str], tmp_path: Path) -> None:
    files = sorted(os.listdir(tmp_path))
    for name in STORED:
        fields = {"key": name, "batch": name, "labels": {name: name}, "unique_key": name, "cwd": name}
        for queue in (name, "own"):
            said = house.ask("POST", "/v1/jobs", {"jobs": [{"command": "true", "queue": queue} | fields]})
            assert said.status in (200, 400, 409), said
            target = f"/v1/jobs/{quote(name, safe='')}"
            for tail in ("", "/output", "/history", "/why", "/events", "/tree"):
                assert house.ask("GET", target + tail).status in (200, 404), (target, tail)
        assert house.ask("GET", f"/v1/jobs?batch={quote(name)}&queue={quote(name)}").status == 200
        claim = house.ask("POST", "/v1/jobs/claim", {"queues": [name, "own"], "name": name})
        assert claim.status == 200
        if (lent := claim.json["lent"]) is not None:
            held = {"pool": lent["pool"], "fence": lent["fence"]}
            job = lent["job"]["id"]
            assert house.ask("POST", f"/v1/jobs/{job}/output", held | {"stdout": "x"}).status == 200
            assert house.ask("POST", f"/v1/jobs/{job}/complete", held).status == 200
    assert sorted(os.listdir(tmp_path)) == files
    assert not outside(house, opened)


@pytest.mark.parametrize("fence", ["../../secret", "-1", "1" * 300, "1e2", "%00", "0/../../secret"])
def test_the_number_of_a_run_is_a_number(house: House, opened: set[str], fence: str) -> None:
    job, _, _ = house.jobs["own"]
    said = house.ask("GET", f"/v1/jobs/{job}/output?fence={fence}")
    assert said.status == 400 or said.json["stdout"] == ""
    assert not outside(house, opened)


def plant(house: House, name: str, target: str) -> Path:
    live = Path(house.engine.store.dialect.side, "live")
    live.mkdir(exist_ok=True)
    os.symlink(target, live / name)
    return live / name


def test_a_link_in_the_live_directory_is_not_followed(house: House, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    job, pool, fence = house.jobs["own"]
    held = {"pool": pool, "fence": fence}
    plant(house, f"{job}.{fence}.out", str(secret))
    assert house.ask("GET", f"/v1/jobs/{job}/output").json["stdout"] == ""
    said = house.ask("POST", f"/v1/jobs/{job}/output", held | {"stdout": "more"})
    assert (said.status, said.code) == (503, "store")
    assert str(tmp_path) not in said.body.decode()
    assert house.ask("POST", f"/v1/jobs/{job}/complete", held).status == 200
    assert secret.read_text() == SECRET
    (attempt,) = house.engine.history(job) or [None]
    assert attempt is None or SECRET not in attempt.stdout


def test_nor_a_link_where_a_full_file_is_put_together(house: House, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    job, pool, fence = house.jobs["own"]
    plant(house, f"{job}.{fence}.out.part", str(secret))
    for _ in range(4):
        body = {"pool": pool, "fence": fence, "stdout": "x" * (3 << 19)}
        assert house.ask("POST", f"/v1/jobs/{job}/output", body).status == 200
    assert secret.read_text() == SECRET
    assert len(house.ask("GET", f"/v1/jobs/{job}/output").json["stdout"]) > 1 << 20


def test_a_pipe_in_the_live_directory_makes_nobody_wait(house: House) -> None:
    job, pool, fence = house.jobs["own"]
    live = Path(house.engine.store.dialect.side, "live")
    live.mkdir(exist_ok=True)
    os.mkfifo(live / f"{job}.{fence}.out")
    assert house.ask("GET", f"/v1/jobs/{job}/output").json["stdout"] == ""
    body = {"pool": pool, "fence": fence, "stdout": "more"}
    assert house.ask("POST", f"/v1/jobs/{job}/output", body).status == 503


def test_every_part_of_a_path_is_decoded_once(house: House) -> None:
    made = house.ask("POST", "/v1/jobs", {"jobs": [{"command": "true", "key": "a/b c%2f%e2"}]}).json[0]["id"]
    assert house.ask("GET", "/v1/jobs/a%2Fb%20c%252f%25e2").json["id"] == made
    assert house.ask("GET", "/v1/jobs/a/b%20c%252f%25e2").status == 404
    assert ENDPOINTS["job"].path == "/v1/jobs/{ref}"
