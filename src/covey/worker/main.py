"""The first thing a forked worker does."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import threading
import traceback
from typing import Any

from ..core.codec import clean
from ..env import failpoint
from .slot import Slot
from .station import Station


def work(name: str, kind: str, places: int, fds: tuple[int, int, int], live: str, mark: str, app: str | None) -> None:
    """Serves until the pool hangs up. Never returns into the zygote."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    jobs = socket.socket(fileno=fds[0])
    reports = socket.socket(fileno=fds[1])
    slot = Slot(fds[2], places)
    os.close(fds[2])
    station = Station(name, jobs, reports, slot, live)
    try:
        failpoint("worker.starting")
        _serve(station, kind, mark, app)
    except BrokenPipeError:
        pass  # the pool is gone; so are we
    except BaseException as error:
        traceback.print_exc()
        station.broken(clean(f"{type(error).__name__}: {error}"))


def _serve(station: Station, kind: str, mark: str, app: str | None) -> None:
    if kind == "command":
        from .commands import Commands

        Commands(station, mark).serve()
    elif kind == "sync":
        from . import family
        from .functions import Functions

        family.become_subreaper()
        Functions(station, load_tasks(app)).serve()
    else:
        from . import family
        from .coroutines import Coroutines

        family.become_subreaper()
        Coroutines(station, load_tasks(app)).serve()


def load_tasks(app: str | None) -> dict[str, Any]:
    """The tasks of `module:app`, imported if the zygote has not done so already."""
    if app is None:
        return {}
    module, _, attribute = app.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    found = importlib.import_module(module)
    for part in (attribute or "app").split("."):
        found = getattr(found, part)
    tasks = getattr(found, "tasks", None)
    if not isinstance(tasks, dict):
        raise TypeError(f"{app} is not a Covey app")
    return tasks


def other_threads() -> list[str]:
    """Threads that an import has started; a fork would leave them behind."""
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
