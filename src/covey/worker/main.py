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
from .pool_link import PoolLink
from .setting import WorkerConfig
from .slot import Slot


class NoApp(Exception):
    """What was named is not there, or no app. An app that is there but breaks on import is another matter."""


def work(name: str, kind: str, places: int, fds: tuple[int, int, int], config: WorkerConfig) -> None:
    """Serves until the pool hangs up. Never returns into the zygote."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if config.cgroup:
        cgroup.enter(config.group_of(os.getpid()))
    jobs = socket.socket(fileno=fds[0])
    reports = socket.socket(fileno=fds[1])
    slot = Slot(fds[2], places)
    os.close(fds[2])
    link = PoolLink(name, jobs, reports, slot, config.live, config.settings, label=name + config.label)
    try:
        failpoint("worker.starting")
        _serve(link, kind, config)
    except BrokenPipeError:
        pass  # the pool is gone; so are we
    except BaseException as error:
        traceback.print_exc()
        link.broken(clean(f"{type(error).__name__}: {error}"))


def _serve(link: PoolLink, kind: str, config: WorkerConfig) -> None:
    if kind == "command":
        from .command_worker import CommandWorker

        CommandWorker(link, config.mark).serve()
    elif kind == "sync":
        from .sync_worker import SyncWorker

        process_tree.die_with(config.lifeline)  # the other kinds listen to their sockets while a job runs
        process_tree.become_subreaper()
        SyncWorker(link, load_tasks(config.app)).serve()
    else:
        from .async_worker import AsyncWorker

        process_tree.become_subreaper()
        AsyncWorker(link, load_tasks(config.app)).serve()


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
