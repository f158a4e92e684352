"""Fixtures of the whole suite: backends, clock, leak guard, figures of proof, what could not be run."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import psutil
import pytest
from hypothesis import HealthCheck, settings

from covey import env
from covey.engine.engine import Engine
from covey.open import open_dialect
from covey.store import migrate
from covey.store.store import Store
from covey.testing import FakeClock
from tests.kit import HandPool
from tests.kit.lacking import Lacking
from tests.kit.postgres import Given, Schema, Server, a_server

T = TypeVar("T")
NOT_RUN, NOT_RUN_PROGRAM = "NOT RUN: ", "NOT RUN "  # … for lack of a program

BACKENDS = ["file", "memory", "postgres"]  # every contract test runs on each of them, without exceptions

settings.register_profile(
    "covey", deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("covey")

# A shell that runs something in the background has it ignore Ctrl-C, `nohup` has it ignore a hang-up, and who ignores a
# signal passes that on: a `covey run` that ends with its terminal could not be shown.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session")
def proof() -> Callable[[T, T], T]:
    """proof(small, full): the figure of a proof row; `make proof` asks for the full one."""
    full = os.environ.get("COVEY_PROOF") == "full"
    return lambda small, whole: whole if full else small


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What only makes sense with the full figure is left to `make proof`."""
    if os.environ.get("COVEY_PROOF") != "full":
        items[:] = [item for item in items if item.get_closest_marker("full") is None]


# ── engines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def server(own_temp: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server | Given]:
    """A PostgreSQL server, started when the first test asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        server = a_server()
        yield server
        server.close()


@pytest.fixture(scope="session")
def postgres_queue(server: Server | Given) -> Callable[[], str]:
    """An empty queue in the server: its URL. One schema serves all tests of a process, one after the other."""
    return Schema(server, f"test_{os.getpid()}").emptied


@pytest.fixture
def url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Where the queue of this test lives."""
    if backend.endswith("postgres"):
        empty: Callable[[], str] = request.getfixturevalue("postgres_queue")
        return empty()
    return str(tmp_path / "queue.db") if backend.endswith("file") else f"memory:{os.urandom(6).hex()}"


@pytest.fixture
def connect(url: str, clock: FakeClock) -> Iterator[Callable[[], Engine]]:
    """Opens the test's queue once more, as another client or pool would."""
    opened: list[Engine] = []

    def connect() -> Engine:
        dialect = open_dialect(url)
        migrate.migrate(dialect, database_id=env.new_database_id(), now=clock())
        store = Store(dialect)
        store.plan()
        opened.append(Engine(store, clock=clock, rng=Random(0)))
        return opened[-1]

    yield connect
    for engine in opened:
        engine.close()


@pytest.fixture
def engine(connect: Callable[[], Engine]) -> Engine:
    """An engine on an empty queue, with a clock that stands still and dice that fall the same way every time."""
    return connect()


@pytest.fixture
def pool(engine: Engine) -> HandPool:
    return HandPool(engine)


@pytest.fixture(scope="session", autouse=True)
def own_temp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files of this run, and of every process it starts, have a place of their own; so has HOME."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temp")))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            patch.delenv(name, raising=False)
        yield


# ── what could not be run ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from _or_not_run())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from _or_not_run())


def _or_not_run() -> Iterator[None]:
    try:
        return (yield)
    except Lacking as lack:
        pytest.skip(f"{NOT_RUN_PROGRAM if lack.programs else NOT_RUN}{lack}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With COVEY_REQUIRE_ALL a run is not green that lacked a program."""
    if os.environ.get("COVEY_REQUIRE_ALL") and any(why.startswith(NOT_RUN_PROGRAM) for why in _not_run(session.config)):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    found = _not_run(config)
    if not found:
        return
    terminalreporter.section("NOT RUN", sep="=", bold=True, yellow=True)
    for why, tests in sorted(found.items()):
        terminalreporter.line(f"{why} ({len(tests)})", yellow=True)
        for test in sorted(tests):
            terminalreporter.line(f"    {test}")
    if os.environ.get("COVEY_REQUIRE_ALL"):
        terminalreporter.line("COVEY_REQUIRE_ALL is set: what was not run for lack of a program is a failure")


def _not_run(config: pytest.Config) -> dict[str, list[str]]:
    """Why → the tests. Whatever is skipped belongs there, also by a test that does not say it in our words."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    found: dict[str, list[str]] = {}
    for report in reporter.stats.get("skipped", []) if reporter else []:
        why = (
            report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        )
        found.setdefault(why, []).append(report.nodeid)
    return found


# ── nothing is left behind ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def leak_guard(own_temp: None) -> Iterator[None]:
    """After each test there are no more descriptors, threads, children or files of ours than before."""
    before = _belongings()
    yield
    left = _belongings() - before
    if left:
        gc.collect()
        left = _settled(before)
    assert not left, f"left behind: {sorted(left)}"


def _settled(before: set[str]) -> set[str]:
    """What is still there after a moment: a thread or child that is just ending is no leak."""
    from covey.testing.until import until

    try:
        until(lambda: not _belongings() - before, 10)
    except AssertionError:
        return _belongings() - before
    return set()


def _belongings() -> set[str]:
    return _descriptors() | _threads() | _children() | _files()


def _descriptors() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        # A gate is never closed: closing any descriptor of its file would drop the process's locks on it.
        if not target.removesuffix(" (deleted)").endswith("-covey/gate") and "/proc/" not in target:
            found.add(f"descriptor {fd} of {target}")
    return found


def _threads() -> set[str]:
    return {f"thread {t.name} {t.ident}" for t in threading.enumerate() if t.name != "covey-gate"}


def _children() -> set[str]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # none, not even a zombie: no need to read all of /proc
    return {f"process {child.pid}" for child in psutil.Process().children(recursive=True)}


def _files() -> set[str]:
    return {f"temporary file {name}" for name in os.listdir(tempfile.gettempdir())}
