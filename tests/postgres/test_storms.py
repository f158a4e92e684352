"""Real pools while the server kills their sessions, crashes, refuses to write, has no place left: A31, A34."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest

from covey.open import open_engine
from covey.testing import until
from tests.kit.postgres import Server

from .field import Field, Producer, settled, weather

Proof = Callable[[int, int], int]
OURS = "pg_stat_activity where application_name = 'covey' and pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def victim(server: object) -> Iterator[Server]:
    """A server of this file's own, as durable as they come, with few places."""
    victim = Server(fast=False, options=("-c", "max_connections=40"))
    yield victim
    victim.close()


@pytest.fixture(scope="module")
def url(victim: Server) -> str:
    return victim.url()


@pytest.fixture(scope="module")
def at_work(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """Two pools. The same ones go through all of this."""
    field = Field(tmp_path_factory.mktemp("storms"), url)
    for _ in range(2):
        field.pool(count=2)
    for pool in field.pools:
        pool.started()
    field.engine.close()
    yield field
    field.engine = open_engine(url)
    field.close()


@pytest.fixture
def field(at_work: Field, url: str) -> Iterator[Field]:
    at_work.engine = open_engine(url)
    yield at_work
    at_work.engine.close()


def kill_sessions(victim: Server) -> int:
    with victim.admin() as db:
        return len(db.execute(f"select pg_terminate_backend(pid) from {OURS}").fetchall())


def pause(seconds: float) -> None:
    time.sleep(seconds)  # how long the weather lasts, not a wait for something


def test_every_session_is_killed_five_times_a_second(victim: Server, field: Field, url: str, proof: Proof) -> None:
    seconds = proof(4, 30)
    producer, killed = Producer(url, proof(400, 5000), seconds * 0.9, batch=proof(1, 10)), 0
    roots = field.calls("branch", [(-10 * n, 3) for n in range(1, proof(40, 400))])
    with weather(field):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            killed += kill_sessions(victim)
            pause(0.2)
        settled(field, producer, 120)
    assert killed > 4 * seconds
    assert not producer.unknown
    assert not producer.refused
    trees = Counter(number for number in map(int, field.traces()) if number < 0)
    assert trees == Counter(-10 * n + leaf for n in range(1, len(roots) + 1) for leaf in range(4))


def test_the_server_crashes_and_comes_back(victim: Server, field: Field, url: str, proof: Proof) -> None:
    times = proof(2, 10)
    producer = Producer(url, 150 * times, 3 * times)
    with weather(field):
        for number in range(1, times + 1):
            until(lambda n=number: len(producer.ids) >= 40 * n, 30, "the queue is in use")
            victim.stop("immediate")
            pause(0.5)
            victim.start()
        settled(field, producer, 90)


def test_a_read_only_server_is_waited_for(victim: Server, field: Field, url: str, proof: Proof) -> None:
    producer = Producer(url, proof(200, 2000), proof(4, 25))
    until(lambda: len(producer.ids) > 10, 15, "the queue is in use")
    with weather(field):
        with read_only(victim):
            pause(proof(3, 20))
        settled(field, producer)
    assert producer.refused  # whoever enqueued was told


def test_a_server_without_a_place_left_is_waited_for(victim: Server, field: Field, url: str, proof: Proof) -> None:
    producer = Producer(url, proof(200, 2000), proof(4, 25))
    until(lambda: len(producer.ids) > 10, 15, "the queue is in use")
    with weather(field):
        with no_places(victim):
            pause(proof(3, 20))
        settled(field, producer)


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
