"""The pool's end of one zygote: it is started, imports the app, is asked for workers, and ends."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from typing import Self

from msgspec.structs import asdict

from ..errors import CoveyError, InvalidInput
from ..system import process_tree
from ..system.calls import pool_calls
from ..system.process import alive, is_traced, start_ticks
from ..system.resources import raise_file_limit
from ..worker import messages
from ..worker.messages import WorkerConfig

CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # what code does to itself
PRELOAD_S = 60.0
TRIES = 3  # of a zygote that somebody kills
SECRET = ("COVEY_TOKEN", "COVEY_TOKEN_FILE")  # ours to come in with, no business of the jobs
FATE_S = 5.0  # until a guard has told of its zygote, or has ended with it: at once, but on a busy machine


class ZygoteProcess:
    """One running zygote, and the guard above it."""

    def __init__(
        self, setting: WorkerConfig, *, preload: bool, environ: dict[str, str], says: int | None = None
    ) -> None:
        self.control, theirs = pool_calls.framed_pair()
        self._fate, telling = os.pipe()  # the signal that has killed the zygote; its parent is the guard
        given = {"control": theirs.fileno(), "fate": telling, "preload": preload, **asdict(setting)}
        self._before = frozenset(process_tree.children(os.getpid()))  # of who was us before exec: no business of ours
        if says is None:  # what it and its workers say before and between jobs
            says = _stderr()
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "covey.worker.zygote", json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=says,
                stderr=says,
                pass_fds=[theirs.fileno(), telling, setting.lifeline],
                start_new_session=True,
                env=environ | {"COVEY_RUN": f"{setting.mark}:0:0" if setting.mark else process_tree.BLANK},
            )
        except OSError:
            self._hang_up()
            raise
        finally:
            theirs.close()
            os.close(telling)
        self.identity: tuple[int, int] | None = None  # (pid, ticks), once it has said so

    def adopt(self, setting: WorkerConfig, url: str, says: int | None) -> None:
        """The zygote knows whose it is: it was started before that was known."""
        says = _stderr() if says is None else says
        beside = [] if says < 0 else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [says]))]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its end is noticed
            self.control.sendmsg([messages.encode(messages.Adopt(setting, url))], beside)

    def fork(self, name: str, kind: str, places: int, fds: tuple[int, int, int]) -> None:
        """A worker is on its way; it reports in on its own stream."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))]
        self.control.sendmsg([messages.encode(messages.ForkWorker(name, kind, places))], beside)

    def hear(self) -> messages.FromZygote | None:
        """The next message; None when the zygote is gone."""
        try:
            data = self.control.recv(1 << 20)
        except ConnectionResetError:
            return None
        message = messages.decode_from_zygote(data) if data else None
        if isinstance(message, messages.Preloaded):
            self.identity = message.pid, message.ticks
        return message

    def pids(self) -> set[int]:
        """Who stands between the pool and its workers."""
        return {self._guard.pid, *(self.identity or ())[:1]}

    def ended(self) -> int | None:
        """The exit code of a zygote that is gone, or the negative number of the signal by which it has crashed; None if
        somebody has killed it: not a matter of what it imports."""
        if select.select([self._fate], [], [], FATE_S)[0] and (told := os.read(self._fate, 1)):
            code = -told[0]
        else:
            try:
                code = self._guard.wait(1.0)  # its guard ends with it if it ended by itself
            except subprocess.TimeoutExpired:
                return None
        return code if code >= 0 or -code in CRASHES else None

    def is_traced(self) -> bool:
        """Whether a debugger has stopped the zygote, or may at any moment."""
        return self.identity is not None and is_traced(self.identity[0])

    def close(self, timeout_s: float = 5.0) -> None:
        """The zygote and every descendant of it are gone."""
        self._hang_up()
        try:
            self._guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._bury(timeout_s)

    def lost(self) -> None:
        """The zygote, which has hung up, is gone, and those whom it has left are ours."""
        self._hang_up()
        if self.identity is None:
            self.kill()
        self._bury()  # first: as long as it is there, it would be a stranger with children
        self._guard.kill()
        self._guard.wait()
        self._bury()

    def kill(self) -> None:
        """Zygote and guard are gone; workers, if there are some, are ours."""
        # It has not said who it is: it is the first that its guard has had. If it is gone, that is one of those whom it
        # has left, and no worker. A guard that has been waited for has no pid any more: that may be a stranger's.
        if self.identity is None and self._guard.poll() is None:
            self.identity = next(((pid, start_ticks(pid) or 0) for pid in process_tree.children(self._guard.pid)), None)
        if self.identity and alive(*self.identity):
            process_tree.send([self.identity[0]], signal.SIGKILL)
        self._guard.kill()
        self._guard.wait()
        self._bury()

    def end(self) -> None:
        """Zygote and guard are gone, and whatever they have started; only for a zygote that has not forked workers.

        Not by hanging up: it may be deep in an import. What the import has started comes to us then, as to the
        subreaper next above, and would outlive us.
        """
        self.kill()
        self.close()
        process_tree.end_all(grace_s=0, keep=self._before)

    def _hang_up(self) -> None:
        self.control.close()
        if self._fate != -1:
            os.close(self._fate)
            self._fate = -1

    def _bury(self, timeout_s: float = 5.0) -> None:
        """The zygote has ended; it is our child if its guard was killed before it."""
        deadline = time.monotonic() + timeout_s
        while self.identity and alive(*self.identity) and time.monotonic() < deadline:
            time.sleep(0.0005)
        with contextlib.suppress(ChildProcessError):
            if self.identity:
                os.waitpid(self.identity[0], os.WNOHANG)


class NoZygote(CoveyError):
    """Whatever is tried, it does not live long enough to say a word."""


class EarlyZygote:
    """A zygote goes ahead: the app is imported before the pool has a queue, because it may be the app that names it.

    The pool itself runs no user code, so it asks. Nothing has been opened or registered by then; an app that cannot be
    imported ends it in one line.
    """

    def __init__(self, app: str, db: str | None, signals: int) -> None:
        """``db``: what COVEY_DB shall say to the app; None: as it is."""
        self.app, self.signals = app, signals
        process_tree.become_subreaper()
        self.files = raise_file_limit()
        self.lifeline = os.pipe()
        self.said = pool_calls.nameless_file("covey-import")  # by the app, until there is a log
        self._environ = zygote_environment(db)
        self._process: ZygoteProcess | None = None
        self.told = messages.Preloaded({})

    def learn(self) -> bool:
        """What the app has to tell is known; InvalidInput if it cannot be imported. False if we were told to stop."""
        found = first_zygote(self._start_zygote, self.signals, self.app)
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


def first_zygote(
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


def zygote_environment(db: str | None) -> dict[str, str]:
    """Of a zygote: ours without the secrets, and the queue."""
    environ = {name: value for name, value in os.environ.items() if name not in SECRET}
    return environ if db is None else environ | {"COVEY_DB": db}


def _stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL
