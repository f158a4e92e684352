"""Real pools while the server kills their sessions, crashes, refuses to write, has no place left: A31, A34."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from covey.testing import until
from covey.testing.postgres import Server

from .field import Field, Producer, settled, weather

Proof = Callable[[int, int], int]
OURS = "pg_stat_activity where application_name = 'covey' and pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def victim(server: object) -> Iterator[Server]:
    """A server of this file's own, as durable as they come, with few places."""
    victim = Server(fast=False, options=("-c", "max_connections=40"))
    yield victim
    victim.close()


@pytest.fixture
def url(victim: Server, request: pytest.FixtureRequest) -> str:
    name = "s" + str(abs(hash(request.node.name)))[:12]
    return victim.url(name)


@pytest.fixture
def field(url: str, tmp_path: Path) -> Iterator[Field]:
    """Two pools at work."""
    with Field(tmp_path, url) as field:
        for _ in range(2):
            field.pool(count=2)
        for pool in field.pools:
            pool.started()
        yield field


def kill_sessions(victim: Server) -> int:
    with victim.admin() as db:
        return len(db.execute(f"select pg_terminate_backend(pid) from {OURS}").fetchall())


def pause(seconds: float) -> None:
    time.sleep(seconds)  # how long the weather lasts, not a wait for something


def test_a31_every_session_is_killed_five_times_a_second(victim: Server, field: Field, url: str, proof: Proof) -> None:
    seconds = proof(4, 30)
    producer, killed = Producer(url, proof(400, 5000), seconds * 0.9, batch=proof(1, 10)), 0
    with weather(field):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            killed += kill_sessions(victim)
            pause(0.2)
        settled(field, producer, 120)
    assert killed > 3 * 4 * seconds  # two pools, a producer, a reader; and who listens
    assert not producer.unknown
    assert not producer.refused


def test_a31_the_server_crashes_and_comes_back(victim: Server, field: Field, url: str, proof: Proof) -> None:
    times = proof(2, 10)
    producer = Producer(url, 150 * times, 3 * times)
    with weather(field):
        for number in range(1, times + 1):
            until(lambda n=number: len(producer.ids) >= 40 * n, 30, "the queue is in use")
            victim.stop("immediate")
            pause(0.5)
            victim.start()
        settled(field, producer, 90)


def test_a34_a_read_only_server_is_waited_for(victim: Server, field: Field, url: str, proof: Proof) -> None:
    producer = Producer(url, proof(200, 2000), proof(4, 25))
    until(lambda: len(field.traces()) > 10, 15, "the queue is in use")
    with weather(field):
        with read_only(victim):
            pause(proof(3, 20))
        settled(field, producer)
    assert producer.refused  # whoever enqueued was told


def test_a34_a_server_without_a_place_left_is_waited_for(victim: Server, field: Field, url: str, proof: Proof) -> None:
    producer = Producer(url, proof(200, 2000), proof(4, 25))
    until(lambda: len(field.traces()) > 10, 15, "the queue is in use")
    with weather(field):
        with no_places(victim):
            pause(proof(3, 20))
        settled(field, producer)


def test_a31_trees_grow_while_every_session_is_killed(victim: Server, field: Field, url: str, proof: Proof) -> None:
    producer = Producer(url, 20, 1)
    roots = field.calls("branch", [(10_000 + 10 * n, 3) for n in range(proof(40, 400))])
    with weather(field):
        deadline = time.monotonic() + proof(3, 20)
        while time.monotonic() < deadline:
            kill_sessions(victim)
            pause(0.2)
        field.all_ended(60)
    numbers = sorted(int(line) for line in field.traces() if int(line) >= 10_000)
    assert numbers == sorted(10_000 + 10 * n + leaf for n in range(len(roots)) for leaf in range(4))
    assert {field.job(id).state for id in roots} == {"completed"}
    producer.finish(30)


# ── weather ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def read_only(victim: Server) -> Iterator[None]:
    with victim.admin() as db:
        for word in ("on", "off"):
            db.execute(f"alter system set default_transaction_read_only = {word}")
            db.execute("select pg_reload_conf()")
            if word == "on":
                yield


@contextlib.contextmanager
def no_places(victim: Server) -> Iterator[None]:
    """Every place is taken, ours too: a session that ends cannot come back."""
    with contextlib.ExitStack() as stack, victim.admin() as db:
        for _ in range(2):
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    stack.enter_context(psycopg.connect(victim.admin_url, autocommit=True))
            db.execute(f"select pg_terminate_backend(pid) from {OURS}")
            with contextlib.suppress(psycopg.OperationalError):
                for _ in range(20):
                    stack.enter_context(psycopg.connect(victim.admin_url, autocommit=True))
        yield
