"""A wake-up hint between processes: one Unix datagram socket per listener, in a directory beside the database.

Nothing depends on it: a bell that was not heard costs at most one poll.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys

from ...system.calls import calls
from ...system.files import forget_short_path, short_path
from .sharing import follow

assert sys.platform != "win32"  # it has no sockets of that kind: no_bell.py


class SocketBell:
    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._directory = directory
        # Socket paths are limited to 107 bytes; through the descriptor every path is short.
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self._out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._out.setblocking(False)

    def ring(self, who: str) -> None:
        """Wakes every listener of that kind."""
        try:
            present = os.listdir(self._fd)
        except OSError:
            return
        prefix = who + "-"
        for name in present:
            if name.startswith(prefix):
                self._send(name)

    def listen(self, who: str) -> Ear:
        name = f"{who}-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            return Ear(self._fd, self._directory, name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.path.join(self._directory, name)) from None

    def close(self) -> None:
        """Twice is harmless: a descriptor that was closed may be somebody else's by now."""
        self._out.close()
        if self._fd >= 0:
            forget_short_path(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _send(self, name: str) -> None:
        try:
            self._out.sendto(b"!", short_path(self._fd, self._directory, name))
        except BlockingIOError:
            pass  # its buffer is full of rings
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._fd)  # its listener is gone
        except OSError:
            pass


class Ear:
    """One listener. `wait` returns True after a ring or a `wake`."""

    def __init__(self, directory_fd: int, directory: str, name: str) -> None:
        self._directory_fd, self._name = directory_fd, name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        path = short_path(directory_fd, directory, name)
        try:
            self._socket.bind(path)
        except OSError:
            self._socket.close()
            raise
        follow(path, os.fstat(directory_fd))  # who may not write to it cannot ring
        self._waker = calls.wake_up()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._waker, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        if not self._poll.poll(max(0.0, timeout_s * 1000)):
            return False
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)
        self._waker.drain()
        return True

    def wake(self) -> None:
        self._waker.ring()

    def close(self) -> None:
        self._socket.close()
        self._waker.close()
        with contextlib.suppress(OSError):
            os.unlink(self._name, dir_fd=self._directory_fd)
