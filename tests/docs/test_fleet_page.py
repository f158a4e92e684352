"""What docs/fleet.md tells an operator to type works."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from covey.engine.engine import Engine
from covey.open import open_engine
from tests.kit import HandPool, check_queue, command
from tests.kit.postgres import Given, Server

PAGE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
BLOCKS = dict(re.findall(r"^```sql (\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def names() -> dict[str, str]:
    mark = f"{os.getpid()}_{os.urandom(3).hex()}"
    return {"app": f"app_{mark}", "guest": f"guest_{mark}"}


@pytest.fixture
def run(server: Server | Given, names: dict[str, str]) -> Iterator[Callable[[str], None]]:
    """Runs a block of the page, with names of the test's own."""

    def run(block: str) -> None:
        text = BLOCKS[block].replace("covey_app", names["app"]).replace("covey_guest", names["guest"])
        text = text.replace("covey.", f"{names['app']}.").replace("'covey'", f"'{names['app']}'")
        with server.admin() as db:
            for statement in filter(str.strip, text.split(";\n")):
                db.execute(statement.encode())

    yield run
    with server.admin() as db:
        db.execute(f"drop schema if exists {names['app']} cascade".encode())
        for role in names.values():
            db.execute(f"drop owned by {role}; drop role {role}".encode())


@pytest.fixture
def opened(server: Server | Given, names: dict[str, str]) -> Iterator[Callable[[str], Engine]]:
    engines: list[Engine] = []

    def opened(user: str) -> Engine:
        parts = urlsplit(server.url(names["app"]))
        place = parts.netloc.rpartition("@")[2]
        engines.append(open_engine(urlunsplit(parts._replace(netloc=f"{names[user]}@{place}"))))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


def test_the_page_s_sql_works_for_users_with_the_rights_that_it_names(
    run: Callable[[str], None], opened: Callable[[str], Engine]
) -> None:
    run("setup")
    owner = opened("app")
    ids = [made.id for made in owner.enqueue([command() for _ in range(3)])]
    run("share")
    guest = opened("guest")
    ids += [made.id for made in guest.enqueue([command() for _ in range(20)])]
    pool = HandPool(guest)
    for claim in pool.claim(4):
        pool.succeed(claim)
    pool.claim(2)
    assert check_queue(guest, acknowledged=ids) == []
    run("watch")
    before = owner.database_id
    run("detach")
    copy = opened("app")
    assert copy.database_id != before
    assert copy.pools() == []
    assert copy.reap(copy.orphaned_pools()[0], -1) == 2
    assert check_queue(copy, acknowledged=ids) == []
