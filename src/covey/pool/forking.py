"""The pool's end of the zygote: asks for workers, hears of their births and deaths."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from array import array

from msgspec.structs import asdict

from ..env import start_ticks
from ..worker import wire
from ..worker.main import Setting


class Nursery:
    """One running zygote."""

    def __init__(self, setting: Setting, *, preload: bool, environ: dict[str, str], says: int | None = None) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = {"control": theirs.fileno(), "preload": preload, **asdict(setting)}
        if says is None:  # what it and its workers say before and between jobs
            says = sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "covey.pool.zygote", json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=says,
                stderr=says,
                pass_fds=[theirs.fileno(), setting.lifeline],
                start_new_session=True,
                env=environ | {"COVEY_RUN": f"{setting.mark}:0:0"},
            )
        except OSError:
            self.control.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.ticks = start_ticks(self.pid) or 0
        self.handle = os.pidfd_open(self.pid)

    def fork(self, name: str, kind: str, places: int, fds: tuple[int, int, int]) -> None:
        """A worker is on its way; it reports in on its own stream."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))]
        self.control.sendmsg([wire.encode(wire.Fork(name, kind, places))], beside)

    def hear(self) -> wire.FromZygote | None:
        """The next message; None when the zygote is gone."""
        try:
            data = self.control.recv(1 << 20)
        except ConnectionResetError:
            return None
        return wire.decode_from_zygote(data) if data else None

    def killed(self) -> bool:
        """Whether somebody else ended it: not a matter of what it imports."""
        return self._process.poll() == -signal.SIGKILL

    def close(self, timeout_s: float = 5.0) -> None:
        """The zygote and every descendant of it are gone."""
        self.control.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self.handle)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


def _has_descriptor() -> bool:
    try:
        sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return False
    return True
