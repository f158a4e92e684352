"""covey doctor: each illness is made, found, and told with what to do. Nothing makes it stumble."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from covey import env
from covey.cli import open_queue
from covey.cli.checks import host, postgres
from covey.cli.checks.check_result import Finding
from covey.cli.commands import doctor
from covey.containers.launch import DATABASE, HOST, OWNER
from covey.discovery import Note, leave_note
from covey.engine.engine import Engine
from covey.env import boot, hostname
from covey.open import open_engine
from covey.store.sqlite import database
from covey.system import cgroup
from tests.kit import HandPool, command
from tests.kit.faults import SmallDisk
from tests.kit.lacking import Lacking
from tests.kit.postgres import Given, Server
from tests.kit.proxy import Pooling

from .conftest import CommandLine, here, lost


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "queue.db")
    open_engine(path).close()
    return path


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Containers of this machine are none of these tests' business."""
    monkeypatch.setattr("covey.containers.docker.ENGINES", ())
    yield
    open_queue.close_queues()


def examined(url: str) -> list[Finding]:
    found = list(doctor._look(url))
    assert all(each.advice for each in found if each.verdict != "ok" and each.check != "queue"), found
    return found


def ill(url: str, check: str) -> Finding:
    """The one finding of that name that is not well."""
    (found,) = [each for each in examined(url) if each.check == check and each.verdict != "ok"]
    return found


def is_well(url: str) -> bool:
    return all(each.verdict == "ok" for each in examined(url))


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_healthy_queue_is_well_and_says_so(covey: CommandLine) -> None:
    covey("config", "set", "max_attempts", "5")
    told = covey("doctor", env={"PATH": "/nowhere"})
    assert (told.code, told.err) == (0, "")
    assert "bad" not in told.out
    assert "warn" not in told.out or "tmpfs" in told.out


def test_what_is_bad_is_told_with_what_to_do_and_exits_with_1(covey: CommandLine) -> None:
    covey("config", "set", "max_attempts", "5")
    with covey.engine() as engine:
        engine.store.ask("set_config", key="max_attempts", value="many")  # as no release would have stored it
    told = covey("doctor", "--json", env={"PATH": "/nowhere"})
    (bad,) = [each for each in told.json if each["verdict"] == "bad"]
    assert (told.code, bad["check"], "config" in bad["advice"]) == (1, "settings", True)
    text = covey("doctor", env={"PATH": "/nowhere"})
    assert (text.code, "Traceback" in text.err + text.out) == (1, False)
    assert f"settings: {bad['advice']}" in text.out


@pytest.mark.parametrize(
    "url", ["postgresql://nobody@127.0.0.1:9/x", "mysql://x", "/nowhere/queue.db", "http://127.0.0.1:9"]
)
def test_a_queue_that_cannot_be_opened_is_bad_and_no_traceback(url: str) -> None:
    assert [each.verdict for each in examined(url)].count("bad") == 1


def test_a_check_that_stumbles_is_a_finding(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object) -> Finding:
        raise RuntimeError("one\ntwo")

    monkeypatch.setattr("covey.cli.checks.settings.look", stumble)
    assert ill(db, "settings").text == "could not be looked at: one"


def test_a_damaged_file_is_told_in_one_line(db: str) -> None:
    engine = open_engine(db)
    for _ in range(200):
        engine.enqueue([command("x" * 500)])
    engine.close()
    with open(db, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40_000)
    found = [each for each in examined(db) if each.verdict == "bad"]
    assert found
    assert all("\n" not in each.text for each in found)


# ── the machine ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("version", "verdict"), [("3.44.5", "bad"), ("3.52.0", "warn"), ("3.53.0", None)])
def test_a_sqlite_with_a_known_bug_is_found(monkeypatch: pytest.MonkeyPatch, version: str, verdict: str | None) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    assert [each.verdict for each in host.library()] == [verdict or "ok"]


def test_a_clock_that_is_far_off_is_found(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "now", lambda: 10**15)  # 2001
    assert "year 2001" in ill(db, "clock").text


def test_a_network_file_system_and_a_missing_directory_are_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(database, "MOUNTS", str(tmp_path / "mounts"))
    assert ill(f"sqlite://{tmp_path}/queue.db", "file system").verdict == "bad"
    assert "no directory" in ill(str(tmp_path / "none" / "queue.db"), "file system").text


def test_a_disk_with_little_room_or_only_for_reading_is_found(tmp_path: Path) -> None:
    with SmallDisk(str(tmp_path), 8) as disk:
        disk.fill()
        assert "is full" in ill(str(tmp_path / "queue.db"), "file system").text
        disk.lock()
        assert ill(str(tmp_path / "queue.db"), "file system").verdict == "bad"


# ── a file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_not_as_durable_as_it_should_be_is_found(db: str) -> None:
    engine = open_engine(db)
    engine.set_setting("durability", "normal")
    engine.close()
    assert ill(db, "durability").verdict == "warn"


def test_a_large_wal_file_is_found(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.cli.checks.sqlite.LARGE_WAL", 100_000)
    engine = open_engine(db)
    reader = apsw.Connection(db)
    reader.execute("begin; select * from meta").fetchall()  # what holds the checkpoint up
    for _ in range(30):
        engine.enqueue([command("x" * 9000)])
    assert "snapshot" in (ill(db, "wal file").advice or "")
    reader.close()
    engine.close()


def test_a_file_that_was_moved_without_its_wal_is_found(db: str) -> None:
    engine = open_engine(db)
    engine.enqueue([command()])
    os.rename(db, f"{db}.moved")
    assert f"{db}-wal" in (ill(db, "file").advice or "")
    os.rename(f"{db}.moved", db)
    engine.close()


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("max_attempts", "1000", "max_attempts 1000"),
        ("max_backoff_seconds", "0", "tried again at once"),
        ("keep_completed_seconds", "never", "kept for ever"),
        ("poll_seconds", "0.001", "never rests"),
        ("max_poll_seconds", "0.05", "longer than max_poll_seconds"),
    ],
)
def test_settings_that_make_no_sense_are_found(db: str, setting: str, value: str, text: str) -> None:
    engine = open_engine(db)
    engine.set_setting("max_attempts", "5")
    engine.set_setting(setting, value)
    engine.close()
    assert text in ill(db, "settings").text


def test_a_lease_shorter_than_three_heartbeats_is_found(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_well(db) or "tmpfs" in str(examined(db))
    monkeypatch.setenv("COVEY_WORKER_HEARTBEAT_INTERVAL", "11")  # which nobody could check against the stored lease
    assert "lease of 30 s with a heartbeat every 11 s" in ill(db, "settings").text
    monkeypatch.setenv("COVEY_WORKER_HEARTBEAT_INTERVAL", "soon")
    assert ill(db, "settings").verdict == "bad"


def test_pools_of_another_version_are_found(db: str) -> None:
    engine = open_engine(db)
    engine.register(msgspec.structs.replace(here(name="old"), version="0.0.1"))
    assert "old (0.0.1)" in ill(db, "pools").text
    engine.close()


# ── leftovers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pools_that_are_gone_and_their_processes_are_found(db: str) -> None:
    engine = open_engine(db)
    pool = HandPool(engine, lost(name="fallen"))
    stray = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        env={"COVEY_RUN": f"{engine.database_id}:{pool.id}:1:1"},
        stdin=subprocess.PIPE,
    )
    try:
        assert str(stray.pid) in ill(db, "leftovers").text
        assert "fallen" in ill(db, "queue").text
    finally:
        stray.communicate(b"\n")
        engine.close()


def test_live_output_of_runs_that_are_over_is_found(db: str) -> None:
    live = Path(db + "-covey") / "live"
    live.mkdir(parents=True, exist_ok=True)
    (live / "7.3.out").write_text("long ago")
    assert "7.3.out" in ill(db, "leftovers").text


def test_the_directory_of_a_lost_pool_is_found(db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"covey-live-{boot().replace(':', '.')}-{os.getpid()}-1").mkdir()
    assert "covey-live-" in ill(db, "leftovers").text


def test_the_note_of_a_server_that_is_gone_is_found(db: str) -> None:
    note = Note(url="http://127.0.0.1:1", database_id="x", version="0", pid=os.getpid(), ticks=1, boot=boot())
    leave_note(db + "-covey", note)
    assert "http://127.0.0.1:1" in ill(db, "leftovers").text
    Path(db + "-covey", "server.json").write_text("{")
    assert "cannot be read" in ill(db, "leftovers").text


def test_control_groups_of_lost_pools_are_found(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVEY_CGROUP", raising=False)
    engine = open_engine(db)
    made = cgroup.create(cgroup.name(engine.database_id, os.getpid(), 1))
    engine.close()
    if made is None:
        raise Lacking("no control group (version 2) is delegated to this process")
    try:
        assert made in ill(db, "leftovers").text
    finally:
        cgroup.end(made)


def test_containers_of_a_lost_supervisor_are_found(db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(db)
    labels = {DATABASE: engine.database_id, OWNER: f"{boot()}:{os.getpid()}:1", HOST: hostname()}
    engine.close()
    told = json.dumps(["/covey-left-1", {"Status": "running"}, labels])
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\ncase $1 in ps) echo 1;; inspect) echo '{told}';; esac\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("covey.containers.docker.ENGINES", ("docker",))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "covey-left-1" in ill(db, "leftovers").text
    program.write_text("#!/bin/sh\necho no daemon >&2; exit 1\n")  # an engine that does not run is no illness
    assert not [each for each in examined(db) if each.check == "containers" and each.verdict != "ok"]


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def queue(postgres_queue: Callable[[], str]) -> str:
    return postgres_queue()


@pytest.fixture
def pg(queue: str) -> Iterator[Engine]:
    engine = open_engine(queue)
    yield engine
    engine.close()


def with_setting(url: str, *settings: str) -> str:
    """The same for sessions that have these."""
    return f"{url}&options={'%20'.join(f'-c%20{each}' for each in settings)}"


def test_a_server_without_fsync_is_bad(queue: str, server: Server | Given) -> None:
    if isinstance(server, Given):
        raise Lacking("the server is somebody else's")
    assert "fsync and full_page_writes off" in ill(queue, "durability").text  # that of the tests is fast, and no more


def test_settings_of_a_session_that_make_it_slow_or_useless_are_found(queue: str) -> None:
    url = with_setting(queue, "statement_timeout=500", "default_transaction_isolation=serializable")
    assert "statement_timeout 500 ms" in ill(url, "time-outs").text
    assert "serializable" in ill(url, "isolation").text
    assert "idle_session_timeout" in ill(with_setting(queue, "idle_session_timeout=9000"), "time-outs").text
    assert ill(with_setting(queue, "default_transaction_read_only=on"), "writing").verdict == "bad"


def test_durability_normal_is_told_on_postgresql_too(queue: str, pg: Engine) -> None:
    pg.set_setting("durability", "normal")
    assert any("normal: commits do not wait" in each.text for each in examined(queue) if each.check == "durability")


def off_by_90_s(text: str, how: str) -> bool:
    """More or less: on a busy machine the way to a server and back takes a while."""
    found = re.fullmatch(rf"the server's clock is ([0-9.]+) s {how}", text)
    return found is not None and abs(float(found[1]) - 90) < 60


def test_a_clock_of_the_server_that_is_off_is_found(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = env.now
    monkeypatch.setattr(env, "now", lambda: real() + 90_000_000)
    assert off_by_90_s(ill(queue, "clocks").text, "behind")


def test_a_pooler_through_which_nobody_is_woken_is_found(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "HEARD_S", 0.3)
    with Pooling(queue) as pooling:
        found = ill(pooling.url, "wake-ups")
        assert "a pooler is in between" in found.text
        assert "not heard" in found.text
        direct = pooling.url + "&listen=off"
        assert [each.verdict for each in examined(direct) if each.check == "wake-ups"] == ["ok"]


def test_what_holds_up_vacuum_is_found(queue: str, pg: Engine, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "OLD_S", 0)
    monkeypatch.setattr(postgres, "MANY_DEAD", 1000)
    schema = pg.store.dialect.prefix
    pg.enqueue([command() for _ in range(300)])
    with server.admin() as db:
        db.execute(f"alter table {schema}jobs set (autovacuum_enabled = off)".encode())
        try:
            assert "disabled for the table" in ill(queue, "vacuum").text
        finally:
            db.execute(f"alter table {schema}jobs reset (autovacuum_enabled)".encode())
        db.execute("begin isolation level repeatable read; select 1")
        with server.admin() as other:
            for _ in range(5):
                other.execute(f"update {schema}jobs set updated_at = updated_at".encode())
            other.execute("select pg_stat_force_next_flush()")
            other.execute("select 1")
        assert "dead rows" in ill(queue, "vacuum").text
        assert f"pid {db.info.backend_pid}" in ill(queue, "old transactions").text
        db.execute("rollback")


def test_a_server_without_autovacuum_or_room_for_connections_is_found() -> None:
    server = Server(fast=False, options=("-c", "autovacuum=off", "-c", "max_connections=8"))
    try:
        engine = open_engine(server.url())
        with server.admin(), server.admin(), server.admin():
            assert ill(server.url(), "vacuum").verdict == "bad"
            assert "of 5 connections" in ill(server.url(), "connections").text
        assert [each.verdict for each in examined(server.url()) if each.check == "durability"] == ["ok"]
        engine.close()
    finally:
        server.close()


# ── a server ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_clock_of_the_http_server_that_is_off_is_found(covey: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from .test_remote import serve

    url = serve(covey)
    assert is_well(url), examined(url)
    open_queue.close_queues()
    real = env.now
    monkeypatch.setattr(env, "now", lambda: real() - 90_000_000)
    assert off_by_90_s(ill(url, "clocks").text, "ahead")
