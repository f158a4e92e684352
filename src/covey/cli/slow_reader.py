"""Standard output or error of a command that has more to do than to wait for a reader who is slow, or does not read.

What the reader has not taken by the time that something else must be done stays here, and goes out first when more is
written: every byte once. So a time-out holds although a pipe is full.
"""

from __future__ import annotations

import os
import re
import select
import stat
import time
from collections.abc import Callable
from typing import TextIO

from .printing import safe

SLICE = 4096  # what a pipe that can be written to takes without waiting
WAIT_MS = 50
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def shown(text: str, target: TextIO) -> bytes:
    """The text as it is in a pipe, harmless on a terminal."""
    if target.isatty():
        text = safe(_COLOUR.sub("", text).replace("\r\n", "\n"))
    return text.encode("utf-8", "replace")


class Outlet:
    def __init__(self, target: TextIO, enough: Callable[[], bool]) -> None:
        """``enough`` is asked while the reader is waited for: whether there is something else to be done."""
        target.flush()
        self._target, self._enough = target, enough
        self._fd = _without_waiting(target.fileno())
        self._data, self._at = b"", 0
        self._patience_s: float | None = None
        self._moved_at = 0.0
        self.is_shut = False
        self.is_unread = False  # whether it was shut because the reader is gone

    def write(self, text: str) -> None:
        """The text is out, after all that was left before; or it is kept, because there is something else to do."""
        if self.is_shut or not text:
            return
        self._data, self._at = self._data[self._at :] + shown(text, self._target), 0
        self._moved_at = time.monotonic()
        self._pour()

    def hurry(self, patience_s: float) -> None:
        """What was kept is out. From now on a reader who takes nothing for that long gets nothing more."""
        self._patience_s, self._moved_at = patience_s, time.monotonic()
        self._pour()

    def shut(self) -> None:
        """Nothing more is written."""
        self.is_shut, self._data, self._at = True, b"", 0

    def _pour(self) -> None:
        while self._at < len(self._data) and not self._enough():
            try:
                written = os.write(self._fd, self._data[self._at : self._at + SLICE]) if self._is_free() else 0
            except BlockingIOError:
                written = 0
            except OSError:  # a pipe without a reader, a terminal that was closed, a full disk
                self.is_unread = True
                self.shut()
                return
            if written:
                self._at += written
                self._moved_at = time.monotonic()
            elif self._patience_s is not None and time.monotonic() - self._moved_at > self._patience_s:
                self.shut()

    def _is_free(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(WAIT_MS))  # an error is for the write to find out


def _without_waiting(fd: int) -> int:
    """The same pipe or terminal, opened once more: others who have the first one must not be surprised by EAGAIN.

    What cannot be opened again is written to in slices, once it is ready for one.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            pass
    return fd
