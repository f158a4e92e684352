"""The tests that mutants are shown to: which lines each of them runs, and whether they notice something."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from .planting import SOURCE

ROOT = Path(__file__).parents[2]
# What runs in the process of its test: a mutant is planted in memory, and other processes would not have it.
WEB = ("web/test_answers.py", "web/test_paths.py", "web/test_queues.py", "web/test_routes.py")
ROOMS = ("machine", "unit", "contract", "app", "postgres/test_messages.py", *WEB)
# PostgreSQL too: turns and enqueues of one message are written in engine/, and no other database takes them.
WAYS = "file,http-file,postgres"
UNFIT = ("socket-", "test_mutants.py", "test_frameworks.py", "planted_bug")  # processes, or bugs, of their own
SLOWEST_S = 6.0

Lines = dict[str, set[int]]  # file under src/covey → lines that ran


class Known(NamedTuple):
    """What the baseline knows of a test."""

    test: str
    seconds: float
    lines: Lines


class Suite:
    """A pytest plugin that collects the tests and then does with them what ``task`` says."""

    def __init__(self, task: Callable[[dict[str, pytest.Item]], None]) -> None:
        self.task = task

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        fit = {item.nodeid: item for item in session.items if _is_fit(item)}
        if not session.testsfailed:  # else a test file could not be imported
            self.task(fit)
        return True


def _is_fit(item: pytest.Item) -> bool:
    return not any(word in item.nodeid for word in UNFIT)


def collected(task: Callable[[dict[str, pytest.Item]], None], paths: Iterable[str] = ()) -> None:
    """``task`` is called with every test that can be used."""
    os.environ["COVEY_TEST_BACKENDS"] = WAYS
    os.environ.pop("COVEY_PROOF", None)
    without = ("cacheprovider", "terminal", "faulthandler", "xdist", "schemathesis")
    options = ["-s", "-o", "addopts=", *(word for name in without for word in ("-p", f"no:{name}"))]
    where = list(paths) or [f"tests/{room}" for room in ROOMS]
    pytest.main([*options, "--rootdir", str(ROOT), *where], plugins=[Suite(task)])


def passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether the test passes, with what it needs before and after it."""
    reports = runtestprotocol(item, log=False, nextitem=following)
    return not any(report.failed for report in reports)


def noticed(items: Sequence[tuple[pytest.Item, float]], home: Path) -> str | None:
    """The first of these tests, (test, seconds it usually takes), that fails; None if none does.

    A test that computes or waits far too long ends the process by a signal.
    """
    home.mkdir(parents=True)
    if items:
        factory: Any = items[0][0].config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = home
    try:
        for index, (item, seconds) in enumerate(items):
            signal.setitimer(signal.ITIMER_PROF, 3 + 10 * seconds)
            signal.setitimer(signal.ITIMER_REAL, 20 + 20 * seconds)
            following = items[index + 1][0] if index + 1 < len(items) else None
            if not passes(item, following):
                return item.nodeid
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(home, ignore_errors=True)


class Tracer:
    """The lines of core/ and engine/ that run, in every thread."""

    def __init__(self) -> None:
        self.lines: Lines = {}
        self._skip: set[str] = set()

    def __enter__(self) -> Tracer:
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        path = frame.f_code.co_filename
        if path in self._skip:
            return None
        file = path.removeprefix(f"{SOURCE}/")
        if not file.startswith(("core/", "engine/")):
            self._skip.add(path)
            return None
        lines = self.lines.setdefault(file, set())
        lines.add(frame.f_lineno)

        def line(frame: FrameType, event: str, arg: object) -> Any:
            lines.add(frame.f_lineno)
            return line

        return line


def baseline(items: dict[str, pytest.Item], home: Path, say: Callable[[Known], None]) -> None:
    """Every test that passes on the code as it is, runs something of it and does not take too long."""
    home.mkdir(parents=True, exist_ok=True)
    tests = list(items.values())
    factory: Any = tests[0].config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = home
    for index, item in enumerate(tests):
        following = tests[index + 1] if index + 1 < len(tests) else None
        began = time.monotonic()
        with Tracer() as tracer:
            passed = passes(item, following)
        took = time.monotonic() - began
        if not passed:
            print(f"fails without any mutant, so it is not used: {item.nodeid}", flush=True)
        elif tracer.lines and took < SLOWEST_S:
            say(Known(item.nodeid, took, tracer.lines))
    shutil.rmtree(home, ignore_errors=True)
