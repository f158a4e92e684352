"""Wake-ups: A32, A33. What LISTEN hears comes at once; what it cannot hear is found by looking."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from covey.engine.engine import Engine
from covey.store.postgres.bell import Ears
from covey.store.postgres.database import Postgres
from covey.store.postgres.url import Target
from covey.testing import until
from tests.kit import HandPool, command
from tests.kit.faults import failpoint
from tests.kit.postgres import Server
from tests.kit.proxy import Proxy

Open = Callable[..., Engine]


@pytest.fixture
def ears(url: str) -> Iterator[Ears]:
    ears = Ears(Target.of(url))
    yield ears
    ears.close()


@pytest.fixture
def admin(server: Server) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with server.admin() as db:
        yield db


@pytest.fixture
def heard(url: str, server: Server) -> Iterator[Callable[[], list[str]]]:
    """Everything that was notified since the last call."""
    with psycopg.connect(server.admin_url, autocommit=True) as db:
        db.execute(f'listen "{Target.of(url).channel}"'.encode())

        def heard() -> list[str]:
            return [notice.payload for notice in db.notifies(timeout=0.3)]

        yield heard


@pytest.fixture
def sent(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every message to the server, from now on."""
    texts: list[str] = []
    send = Postgres._run_all

    def noted(self: Postgres, text: str, params: Any) -> Any:
        texts.append(text)
        return send(self, text, params)

    monkeypatch.setattr(Postgres, "_run_all", noted)
    return texts


def backend(ears: Ears) -> int:
    return until(lambda: ears.backend, 10, "somebody listens")


# ── killed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_its_session_was_killed_a_listener_hears_again(
    engine: Engine, ears: Ears, admin: psycopg.Connection[Any], proof: Callable[[int, int], int]
) -> None:
    ear = ears.listen("pool")
    for number in range(proof(3, 20)):
        before = backend(ears)
        while ear.wait(0.0):
            pass
        admin.execute("select pg_terminate_backend(%s)", [before])
        until(lambda pid=before: ears.backend not in (None, pid), 10, "another session listens")
        assert ear.wait(60)  # what was said in between is found by looking
        while ear.wait(0.05):
            pass
        engine.enqueue([command(queue=f"q{number}")])  # without a backlog, which would need no wake-up
        assert ear.wait(1), "the enqueue is heard"


def test_a_pool_that_waits_is_woken_again(engine: Engine, opened: Open, admin: psycopg.Connection[Any]) -> None:
    sleeper = opened()
    pool = HandPool(sleeper)
    sleeper.wait(pool.id, None, 0.0)
    listening = sleeper.store.dialect._ears  # type: ignore[attr-defined]
    admin.execute("select pg_terminate_backend(%s)", [backend(listening)])
    backend(listening)
    while sleeper.wait(pool.id, None, 0.1):
        pass
    rung: list[bool] = []
    thread = threading.Thread(target=lambda: rung.append(any(sleeper.wait(pool.id, None, 1) for _ in range(5))))
    thread.start()
    engine.enqueue([command()])
    thread.join()
    assert rung == [True]


def test_a_listener_outlives_a_server_that_is_away(url: str, proxy: Proxy, engine: Engine) -> None:
    ears = Ears(Target.of(proxy.url))
    try:
        ear = ears.listen("pool")
        backend(ears)
        proxy.refusing = True
        proxy.cut()
        until(lambda: ears.backend is None, 5)
        proxy.refusing = False
        backend(ears)
        while ear.wait(0.05):
            pass
        engine.enqueue([command()])
        assert ear.wait(60)
    finally:
        ears.close()


# ── in between ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_enqueued_between_loss_and_listen_wakes_who_listens_again(url: str, proxy: Proxy, engine: Engine) -> None:
    """Nobody listens when it is said: the ear is woken once somebody does, and then looks."""
    ears = Ears(Target.of(proxy.url))
    try:
        ear = ears.listen("pool")
        backend(ears)
        while ear.wait(0.05):
            pass
        proxy.refusing = True
        proxy.cut()
        until(lambda: ears.backend is None, 5)
        engine.enqueue([command()])
        assert not ear.wait(0.3)
        proxy.refusing = False
        assert ear.wait(60)
    finally:
        ears.close()


def test_what_is_said_while_listen_is_under_way_is_not_missed(url: str, proxy: Proxy, engine: Engine) -> None:
    """LISTEN reaches the server only after the job is there: the wake-up that follows it finds the job."""
    pool = HandPool(engine)
    proxy.break_next("hold", lambda message: b"listen" in message)
    ears = Ears(Target.of(proxy.url))
    try:
        ear = ears.listen("pool")
        until(lambda: proxy.holding, 5)
        engine.enqueue([command()])
        assert ear.wait(60)
        assert pool.claim_one()
    finally:
        ears.close()


def test_a_pool_that_looks_after_each_wake_up_claims_everything_while_sessions_are_killed(
    engine: Engine, opened: Open, admin: psycopg.Connection[Any], proof: Callable[[int, int], int]
) -> None:
    sleeper = opened()
    pool = HandPool(sleeper)
    count = proof(30, 300)
    claimed: list[int] = []

    def work() -> None:
        while len(claimed) < count:
            sleeper.wait(pool.id, None, 1)
            for claim in pool.claim(10):
                claimed.append(claim.id)
                pool.succeed(claim)

    thread = threading.Thread(target=work)
    thread.start()
    listening = sleeper.store.dialect._ears  # type: ignore[attr-defined]
    made = []
    for number in range(count):
        if number % 3 == 0 and listening.backend:
            admin.execute("select pg_terminate_backend(%s)", [listening.backend])
        made += [each.id for each in engine.enqueue([command()])]
    thread.join(60)
    assert claimed == made


def test_polling_alone_works(url: str, engine: Engine, opened: Open, admin: psycopg.Connection[Any]) -> None:
    """listen=off: no session listens, and both who works and who waits for an end find out."""
    deaf = opened(f"{url}&listen=off")
    pool = HandPool(deaf)
    waited: list[bool] = []
    made = engine.enqueue([command() for _ in range(3)])
    waiter = threading.Thread(target=lambda: waited.append(opened(f"{url}&listen=off").wait_for([made[-1].id], 10)))
    waiter.start()
    for _ in made:
        while not (claims := pool.claim(1)):
            assert deaf.wait(pool.id, None, 1)
        pool.succeed(claims[0])
    waiter.join()
    assert waited == [True]
    assert not admin.execute("select pid from pg_stat_activity where query ilike 'listen%%'").fetchall()


def test_listening_elsewhere_than_working(url: str, proxy: Proxy, opened: Open, engine: Engine) -> None:
    """Behind a pooler: work goes through it, LISTEN goes to the server itself."""
    sleeper = opened(f"{proxy.url}&listen_url={quote(url.partition('&schema')[0])}")
    pool = HandPool(sleeper)
    sleeper.wait(pool.id, None, 0)
    backend(sleeper.store.dialect._ears)  # type: ignore[attr-defined]
    while sleeper.wait(pool.id, None, 0.1):
        pass
    assert not any(b"listen" in message for message in proxy.seen)
    engine.enqueue([command()])
    assert any(sleeper.wait(pool.id, None, 1) for _ in range(5))


# ── how often ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_wake_up_per_enqueue_and_none_into_a_backlog(engine: Engine, heard: Callable[[], list[str]]) -> None:
    engine.enqueue([command()])
    assert heard() == ["pool"]
    engine.enqueue([command() for _ in range(5)])
    assert heard() == ["pool"]
    engine.enqueue([command() for _ in range(100)])
    assert heard() == ["pool"]  # the backlog began with this one
    for _ in range(3):
        engine.enqueue([command()])
    assert heard() == []
    engine.enqueue([command(queue="another")])
    assert heard() == ["pool"]  # its pool may be asleep


def test_without_the_commit_nobody_is_woken(engine: Engine, heard: Callable[[], list[str]]) -> None:
    with failpoint("enqueue.before_commit", "raise"), pytest.raises(OSError, match="failpoint"):
        engine.enqueue([command()])
    assert heard() == []


def test_a_wake_up_travels_behind_the_commit_and_not_in_the_transaction(engine: Engine, sent: list[str]) -> None:
    """Inside it all commits that notify would wait for each other."""
    engine.enqueue([command()])
    engine.enqueue([command()])
    told = [text for text in sent if "ring_unless_backlog" in text or "pg_notify" in text]
    assert len(told) == 2
    for text in told:
        assert text.rindex("commit;") < max(text.rfind("ring_unless_backlog"), text.rfind("pg_notify"))


def test_whoever_waits_for_an_end_is_woken(engine: Engine, opened: Open, ears: Ears) -> None:
    waiter, pool = opened(), HandPool(engine)
    ear = ears.listen("end")
    backend(ears)
    for _ in range(5):
        (made,) = engine.enqueue([command()])
        claim = pool.claim_one()
        while ear.wait(0.05):
            pass
        thread = threading.Thread(target=lambda: waited.append(waiter.wait_for([made.id], 10)))  # noqa: B023
        waited: list[bool] = []
        thread.start()
        pool.succeed(claim)
        assert ear.wait(60), "the end is heard"
        thread.join()
        assert waited == [True]


def test_an_end_that_a_cancel_brings_is_heard_too(engine: Engine, opened: Open, heard: Callable[[], list[str]]) -> None:
    (made,) = engine.enqueue([command()])
    heard()
    engine.cancel([made.id])
    assert "end" in heard()


def test_many_descriptors_do_not_make_a_listener_deaf(url: str, engine: Engine) -> None:
    """A pool of many workers has more than a thousand files open; select() ends at 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    ears = Ears(Target.of(url))
    try:
        ear = ears.listen("pool")
        backend(ears)
        while ear.wait(0.05):
            pass
        engine.enqueue([command()])
        assert ear.wait(60)
    finally:
        ears.close()
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
