"""On a directory of PYTHONPATH: this Python has only what another system has. COVEY_TEST_FOREIGN=darwin or win32.

Names that type stubs do not give that system (`lacks.json`, asked of mypy name by name) are gone from the standard
library, `/proc` and `/sys` cannot be opened but by psutil, which there asks the system's own tables, and `sys.platform`
says the other name. A forgotten call fails loudly. What it cannot show: how calls behave that both systems have.
"""

from __future__ import annotations

import builtins
import errno
import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

FOREIGN = os.environ.get("COVEY_TEST_FOREIGN", "")
LOADED = ("asyncio", "multiprocessing", "selectors", "shutil", "socket", "ssl", "subprocess", "tempfile", "threading")
LIBRARIES = ("psutil", "click", "typer", "rich.console")  # theirs for another system are not to be had
MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "pty", "tty", "syslog", "readline")  # that Windows lacks


def main() -> None:
    for name in LOADED + LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError:
            if name not in LIBRARIES:
                raise
    import selectors
    import shutil
    import sysconfig

    sysconfig.get_config_vars()  # made for this system, and kept

    statvfs = os.statvfs

    def disk_usage(path: str) -> Any:
        found = statvfs(path)
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        return shutil._ntuple_diskusage(total, total - free, free)  # type: ignore[attr-defined]

    shutil.disk_usage = disk_usage
    with open(os.path.join(os.path.dirname(__file__), "lacks.json")) as file:
        lacks: dict[str, str] = json.load(file)[FOREIGN]
    if FOREIGN == "win32":
        make_msvcrt()
        make_socketpair()
        for name in MODULES:
            sys.modules[name] = None  # type: ignore[assignment]
        os.O_BINARY = 0  # type: ignore[attr-defined]
    selectors.DefaultSelector = selectors.SelectSelector if FOREIGN == "win32" else selectors.PollSelector  # type: ignore[misc]
    for module, names in lacks.items():
        for name in names.split():
            if hasattr(sys.modules[module], name):
                delattr(sys.modules[module], name)
    for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink", "access", "statvfs"):
        if hasattr(os, name):
            setattr(os, name, without_proc(getattr(os, name)))
    builtins.open = io.open = without_proc(builtins.open)  # type: ignore[assignment]
    sys.platform = FOREIGN


def without_proc(call: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(path: Any = ".", *args: Any, **named: Any) -> Any:
        if isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(("/proc", "/sys/")):
            asks = [sys._getframe(depth).f_globals.get("__name__", "") for depth in (1, 2)]
            if not any(name.startswith("psutil") for name in asks):
                raise FileNotFoundError(errno.ENOENT, "not on this system", path)
        return call(path, *args, **named)

    return guarded


def make_msvcrt() -> None:
    """Locks on bytes as Windows has them: a region is unlocked as it was locked, and nobody waits."""
    import fcntl
    import types

    module = types.ModuleType("msvcrt")
    held: set[tuple[int, int, int]] = set()

    def locking(fd: int, mode: int, count: int) -> None:
        region = (fd, os.lseek(fd, 0, os.SEEK_CUR), count)
        if mode == module.LK_NBLCK:  # type: ignore[attr-defined]
            if region in held:
                raise PermissionError(errno.EACCES, "locked already")
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, count, region[1])
            held.add(region)
        elif region in held:
            held.remove(region)
            fcntl.lockf(fd, fcntl.LOCK_UN, count, region[1])
        else:
            raise PermissionError(errno.EACCES, "not locked like that")

    module.__dict__.update(LK_NBLCK=2, LK_UNLCK=0, locking=locking)
    sys.modules["msvcrt"] = module


def make_socketpair() -> None:
    import socket

    def socketpair(*_: Any) -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            return ours, server.accept()[0]

    socket.socketpair = socketpair  # type: ignore[assignment]


if FOREIGN:
    main()
