"""A zygote goes ahead: the app is imported before the pool has a queue, because it may be the app that names it.

The pool itself runs no user code, so it asks. Nothing has been opened or registered by then; an app that cannot be
imported ends it in one line.
"""

from __future__ import annotations

import importlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Self

from ..errors import CoveyError, InvalidInput
from ..system import process_tree
from ..worker import messages
from ..worker.setting import WorkerConfig
from .zygote_process import ZygoteProcess

PRELOAD_S = 60.0
TRIES = 3  # of a zygote that somebody kills
SECRET = ("COVEY_TOKEN", "COVEY_TOKEN_FILE")  # ours to come in with, no business of the jobs


class NoZygote(CoveyError):
    """Whatever is tried, it does not live long enough to say a word."""


class Scout:
    def __init__(self, app: str, db: str | None, signals: int) -> None:
        """``db``: what COVEY_DB shall say to the app; None: as it is."""
        self.app, self.signals = app, signals
        process_tree.become_subreaper()
        self.files = raise_file_limit()
        self.lifeline = os.pipe2(os.O_CLOEXEC)
        self.said = os.memfd_create("covey-import", os.MFD_CLOEXEC)  # by the app, until there is a log
        self._environ = environment(db)
        self._process: ZygoteProcess | None = None
        self.told = messages.Preloaded({})

    def learn(self) -> bool:
        """What the app has to tell is known; InvalidInput if it cannot be imported. False if we were told to stop."""
        found = first(self._start_zygote, self.signals, self.app)
        if found is not None:
            self._process, self.told = found
        return found is not None

    def take(self) -> ZygoteProcess | None:
        """The zygote, for whoever looks after it from now on; it has to be told whose it is."""
        zygote, self._process = self._process, None
        return zygote

    def _start_zygote(self) -> ZygoteProcess:
        setting = WorkerConfig(self.app, "", "", self.lifeline[0], self.files)
        return ZygoteProcess(setting, preload=True, environ=self._environ, says=self.said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if zygote := self.take():
            zygote.end()


def first(
    start_zygote: Callable[[], ZygoteProcess], signals: int, app: str | None
) -> tuple[ZygoteProcess, messages.Preloaded] | None:
    """A zygote that has imported the app, and what it said; None if a signal came first."""
    for _ in range(TRIES):
        zygote = start_zygote()
        importlib.import_module(".pool", __package__)  # while the zygote does its own imports
        told = _hear(zygote, signals)
        if isinstance(told, messages.Preloaded) and told.error is None:
            return zygote, told
        code = zygote.ended() if told == "ended" else 0
        zygote.end()
        if told == "signalled":
            return None
        if code is None:
            continue  # somebody has killed it
        if isinstance(told, messages.Preloaded):
            why = told.error
        elif told == "late":
            why = f"the import took longer than {PRELOAD_S:g} s"
        elif code < 0:
            why = f"the import was killed by {signal.Signals(-code).name}"
        else:
            why = f"the import ended the process (exit code {code})"
        if app is None:
            raise NoZygote(f"the zygote cannot start: {why}")
        raise InvalidInput(f"cannot import the app {app!r}: {why}")
    raise NoZygote(f"the zygote was killed {TRIES} times before it could say a word")


def _hear(zygote: ZygoteProcess, signals: int) -> messages.Preloaded | str:
    """What the zygote has to say after its preload; else why it has said nothing."""
    deadline = time.monotonic() + PRELOAD_S
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([zygote.control.fileno(), signals], [], [], left)
        if signals in ready:
            return "signalled"
        if ready:
            told = zygote.hear()
            return told if isinstance(told, messages.Preloaded) else "ended"
    return "late"


def environment(db: str | None) -> dict[str, str]:
    """Of a zygote: ours without the secrets, and the queue."""
    environ = {name: value for name, value in os.environ.items() if name not in SECRET}
    return environ if db is None else environ | {"COVEY_DB": db}


def raise_file_limit() -> int:
    """A pool has five descriptors per worker: the soft limit is as high as allowed. What it was, for the jobs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft
