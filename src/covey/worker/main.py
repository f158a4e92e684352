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

from msgspec import Struct

from ..core.codec import clean
from ..env import failpoint
from . import cgroup, family
from .slot import Slot
from .station import Station


class NoApp(Exception):
    """What was named is not there, or no app. An app that is there but breaks on import is another matter."""


class Setting(Struct, frozen=True):
    """What is the same for every worker of a pool."""

    app: str | None
    live: str
    mark: str
    lifeline: int  # the pool's end of this pipe is closed when it dies
    files: int  # the limit on open files that the pool was started with
    cgroup: str | None = None  # holds the zygote and everything below it
    config: dict[str, Any] = {}  # what the queue was configured with when the pool registered
    label: str = ""  # what follows a worker's name in what it reports: its pool and host

    def group_of(self, pid: int) -> str:
        """The control group of one worker."""
        return f"{self.cgroup}/worker-{pid}"


def work(name: str, kind: str, places: int, fds: tuple[int, int, int], setting: Setting) -> None:
    """Serves until the pool hangs up. Never returns into the zygote."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if setting.cgroup:
        cgroup.enter(setting.group_of(os.getpid()))
    jobs = socket.socket(fileno=fds[0])
    reports = socket.socket(fileno=fds[1])
    slot = Slot(fds[2], places)
    os.close(fds[2])
    station = Station(name, jobs, reports, slot, setting.live, setting.config, label=name + setting.label)
    try:
        failpoint("worker.starting")
        _serve(station, kind, setting)
    except BrokenPipeError:
        pass  # the pool is gone; so are we
    except BaseException as error:
        traceback.print_exc()
        station.broken(clean(f"{type(error).__name__}: {error}"))


def _serve(station: Station, kind: str, setting: Setting) -> None:
    if kind == "command":
        from .commands import Commands

        Commands(station, setting.mark).serve()
    elif kind == "sync":
        from .functions import Functions

        family.die_with(setting.lifeline)  # the other kinds listen to their sockets while a job runs
        family.become_subreaper()
        Functions(station, load_tasks(setting.app)).serve()
    else:
        from .coroutines import Coroutines

        family.become_subreaper()
        Coroutines(station, load_tasks(setting.app)).serve()


def load_tasks(app: str | None) -> dict[str, Any]:
    """The tasks of `module:app`, imported if the zygote has not done so already."""
    if app is None:
        return {}
    module, _, attribute = app.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise NoApp(f"no module {error.name!r}") from None
        raise
    for part in (attribute or "app").split("."):
        if not hasattr(found, part):
            raise NoApp(f"module {module!r} has no {attribute!r}")
        found = getattr(found, part)
    tasks = getattr(found, "tasks", None)
    if not isinstance(tasks, dict):
        raise NoApp(f"{app!r} is not a Covey app")
    return tasks


def other_threads() -> list[str]:
    """Threads that an import has started; a fork would leave them behind."""
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
