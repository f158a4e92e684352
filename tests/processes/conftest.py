"""Real pools. Each test leaves no process behind: the yard looks for them when it closes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest

from tests.kit.postgres import Given, Server
from tests.kit.running import RunningPool, Yard

HERE = Path(__file__).parent
APP = "zoo:app"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module's STORES names the databases that its tests run on: in `make test` each on one of them, by its name;
    `make proof` runs all on both. A module with SERVED runs in `make proof` through a server too; the tests that it
    names do so in `make test`.

    COVEY_TEST_STORES=postgres (or file,postgres,http) overrules the modules. http: a file behind a server, and pools
    that know only the server.
    """
    if "store" in metafunc.fixturenames:
        stores = getattr(metafunc.module, "STORES", ("file",))
        stores = (stores[crc32(metafunc.function.__name__.encode()) % len(stores)],)
        if os.environ.get("COVEY_PROOF") == "full":
            stores = ("file", "postgres")
        served = getattr(metafunc.module, "SERVED", None)
        if served is not None and (os.environ.get("COVEY_PROOF") == "full" or metafunc.function.__name__ in served):
            stores = (*stores, "http")
        if chosen := os.environ.get("COVEY_TEST_STORES"):
            stores = tuple(chosen.split(","))
        if metafunc.definition.get_closest_marker("file_only"):
            stores = ("file",)
        if metafunc.definition.get_closest_marker("same_disk"):
            stores = tuple(store for store in stores if store != "http")
        metafunc.parametrize("store", stores, scope="module")


@pytest.fixture(scope="module")
def new_queue(store: str, request: pytest.FixtureRequest) -> Iterator[Callable[[], str | None]]:
    """The URL of an empty queue in the server, None for a file in the yard's own directory."""
    if store in ("file", "http"):
        yield lambda: None
        return
    server: Server | Given = request.getfixturevalue("server")
    schemas: list[str] = []

    def new() -> str:
        schemas.append(f"yard_{os.getpid()}_{os.urandom(4).hex()}")
        return server.url(schemas[-1])

    yield new
    with server.admin() as db:
        for schema in schemas:
            db.execute(f"drop schema if exists {schema} cascade".encode())


@pytest.fixture
def make_yard(tmp_path: Path, store: str, new_queue: Callable[[], str | None]) -> Iterator[Callable[..., Yard]]:
    """Makes a queue with these settings; several have nothing to do with each other."""
    yards: list[Yard] = []

    def make(**settings: object) -> Yard:
        home = tmp_path / f"yard-{len(yards)}"
        home.mkdir()
        yards.append(Yard(home, url=new_queue(), app=APP, path=[HERE], **settings))
        if store == "http":
            yards[-1].serve()
        return yards[-1]

    yield make
    for yard in yards:
        yard.close()


@pytest.fixture
def yard(make_yard: Callable[..., Yard]) -> Yard:
    """A queue of its own, with the tasks of zoo.py and no pool yet."""
    return make_yard()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, store: str, new_queue: Callable[[], str | None]) -> Iterator[Yard]:
    """One queue with one pool of two workers for all tests of a file that do the pool no harm."""
    with Yard(tmp_path_factory.mktemp("shared"), url=new_queue(), app=APP, path=[HERE]) as yard:
        if store == "http":
            yard.serve()
        yard.pool(count=2).started()
        yard.ends(yard.shell("true"), within_s=20)
        yield yard


@pytest.fixture
def busy(shared: Yard) -> Iterator[Yard]:
    """The shared queue; the test's jobs leave nothing running."""
    before = set(shared.leftovers())
    yield shared
    left = [pid for pid in shared.leftovers() if pid not in before]
    assert not left, f"processes were left behind: {left}"


@pytest.fixture
def the_pool(shared: Yard) -> RunningPool:
    return shared.pools[0]
