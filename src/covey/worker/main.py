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
from ..system import cgroup, process_tree
from .pool_link import Station
from .setting import Setting
from .slot import Slot


class NoApp(Exception):
    """What was named is not there, or no app. An app that is there but breaks on import is another matter."""


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
        from .command_worker import Commands

        Commands(station, setting.mark).serve()
    elif kind == "sync":
        from .sync_worker import Functions

        process_tree.die_with(setting.lifeline)  # the other kinds listen to their sockets while a job runs
        process_tree.become_subreaper()
        Functions(station, load_tasks(setting.app)).serve()
    else:
        from .async_worker import Coroutines

        process_tree.become_subreaper()
        Coroutines(station, load_tasks(setting.app)).serve()


def load_tasks(app: str | None) -> dict[str, Any]:
    """The tasks of `module:app`, imported if the zygote has not done so already."""
    return {} if app is None else load_app(app).tasks


def load_app(app: str) -> Any:
    """`module:app` itself; NoApp if it is not there."""
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
    if not isinstance(getattr(found, "tasks", None), dict):
        raise NoApp(f"{app!r} is not a Covey app")
    return found


def other_threads() -> list[str]:
    """Threads that an import has started; a fork would leave them behind."""
    return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
