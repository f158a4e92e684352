"""A wake-up hint between processes: one Unix datagram socket per listener, in a directory beside the database.

Nothing depends on it: a bell that was not heard costs at most one poll.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket

from .sharing import follow


class Bell:
    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._directory = directory
        # Socket paths are limited to 107 bytes; through the descriptor every path is short.
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
            return Ear(self._fd, name)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.path.join(self._directory, name)) from None

    def close(self) -> None:
        """Twice is harmless: a descriptor that was closed may be somebody else's by now."""
        self._out.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _send(self, name: str) -> None:
        try:
            self._out.sendto(b"!", f"/proc/self/fd/{self._fd}/{name}")
        except BlockingIOError:
            pass  # its buffer is full of rings
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._fd)  # its listener is gone
        except OSError:
            pass


class Ear:
    """One listener. `wait` returns True after a ring or a `wake`."""

    def __init__(self, directory_fd: int, name: str) -> None:
        self._directory_fd, self._name = directory_fd, name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        path = f"/proc/self/fd/{directory_fd}/{name}"
        try:
            self._socket.bind(path)
        except OSError:
            self._socket.close()
            raise
        follow(path, os.fstat(directory_fd))  # who may not write to it cannot ring
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._waker, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        if not self._poll.poll(max(0.0, timeout_s * 1000)):
            return False
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._waker)
        return True

    def wake(self) -> None:
        os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        self._socket.close()
        os.close(self._waker)
        with contextlib.suppress(OSError):
            os.unlink(self._name, dir_fd=self._directory_fd)
