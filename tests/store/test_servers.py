"""What a PostgreSQL server is set to, and becomes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from covey.core.model import Spec
from covey.engine.engine import Engine
from covey.errors import StoreError
from covey.store.postgres.database import Postgres
from tests.kit import command
from tests.kit.postgres import Server


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """With synchronous_commit off, as all of the tests' own."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def url(own_server: Server, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    return own_server.url(f"servers_{os.urandom(4).hex()}")


@pytest.mark.parametrize(
    ("durability", "set_to", "is_then"),
    [("full", "off", "on"), ("full", "remote_apply", "remote_apply"), ("full", "on", "on"), ("normal", "on", "off")],
)
def test_full_durability_is_never_less_than_a_synchronous_commit(
    own_server: Server, url: str, opened: Callable[[str], Engine], durability: str, set_to: str, is_then: str
) -> None:
    opened(url).set_setting("durability", durability)
    with own_server.admin() as db:
        db.execute(f"alter role covey set synchronous_commit = {set_to}".encode())
    try:
        engine = opened(url)
        with engine.store.transaction():
            assert engine.store.dialect.query("show synchronous_commit", {}) == [(is_then,)]
    finally:
        with own_server.admin() as db:
            db.execute("alter role covey reset synchronous_commit")


def test_a_session_on_a_server_that_cannot_be_written_to_is_given_up_so_that_the_next_may_be_elsewhere(
    own_server: Server, url: str, opened: Callable[[str], Engine]
) -> None:
    """As after a failover, when the old server goes on as a standby and the URL names both."""
    opened(url).enqueue([command()])
    with own_server.admin() as db:
        db.execute("alter role covey set default_transaction_read_only = on")
        standby = opened(url)
        db.execute("alter role covey reset default_transaction_read_only")
    with pytest.raises(StoreError, match="a standby"):
        standby.enqueue([command()])
    (made,) = standby.enqueue([command()])
    assert standby.job(made.id).state == "pending"


@pytest.mark.parametrize("spec", [command(), command(key="named")], ids=["in one message", "the usual way"])
def test_an_enqueue_on_a_server_that_has_become_read_only_is_refused_at_once(
    own_server: Server, url: str, opened: Callable[[str], Engine], spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has answered: nobody has to ask for a receipt, for half a minute."""
    monkeypatch.setattr(Postgres, "_has_committed", lambda self, token: pytest.fail("the outcome is known"))
    with own_server.admin() as db:
        db.execute("alter role covey set default_transaction_read_only = off")
        engine = opened(url)
        engine.enqueue([command()])
        engine.enqueue([command()])
        engine.store.raw("set default_transaction_read_only = on")
        with pytest.raises(StoreError, match="a standby"):
            engine.enqueue([spec])
        db.execute("alter role covey reset default_transaction_read_only")
    (made,) = engine.enqueue([spec])
    assert engine.job(made.id).state == "pending"
    assert sum(engine.status().counts.values()) == 3
