"""The pool's end of the zygote: asks for workers, hears of their births and deaths."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from array import array

from msgspec.structs import asdict

from ..env import alive, start_ticks
from ..system import process_tree
from ..system.mark import BLANK
from ..worker import messages
from ..worker.setting import WorkerConfig

CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # what code does to itself
FATE_S = 5.0  # until a guard has told of its zygote, or has ended with it: at once, but on a busy machine


class ZygoteProcess:
    """One running zygote, and the guard above it."""

    def __init__(
        self, setting: WorkerConfig, *, preload: bool, environ: dict[str, str], says: int | None = None
    ) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._fate, telling = os.pipe2(os.O_CLOEXEC)  # the signal that has killed the zygote; its parent is the guard
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
                env=environ | {"COVEY_RUN": f"{setting.mark}:0:0" if setting.mark else BLANK},
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
        with contextlib.suppress(OSError, StopIteration), open(f"/proc/{(self.identity or (0,))[0]}/status") as status:
            return next(line for line in status if line.startswith("TracerPid:")).split()[1] != "0"
        return False

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


def _stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL
