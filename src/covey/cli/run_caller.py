"""The caller of a job: shows that he lives for as long as he does, and hears what he is asked to do."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

from .. import env
from ..core.turn import Caller
from ..errors import CoveyError

if TYPE_CHECKING:
    from ..core.ports import Client

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CLOSE_S = 2.0


class Asked(Exception):
    """Somebody wants us to end: the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class OutOfTime(Exception):
    """--timeout is over."""


class Unread(Exception):
    """Nobody reads what we write."""


class Requests:
    """What shall end us early. Signals are only noted, and acted upon where nothing is half done.

    Whoever asks a second time does not want to wait: then we are gone at once, and the job's pool sees that.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._deadline = None if limit_s is None else time.monotonic() + limit_s
        self._asked: int | None = None
        self._heeded = False
        for number in ASKING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                signal.signal(number, self._note)

    def are_due(self) -> bool:
        """Whether there is one that was not heeded."""
        if self._heeded:
            return False
        return self._asked is not None or (self._deadline is not None and time.monotonic() > self._deadline)

    def heed(self) -> None:
        """Asked or OutOfTime, if that is so. Once: from now on we are ending."""
        if self.are_due():
            self._heeded = True
            raise OutOfTime if self._asked is None else Asked(self._asked)

    def settle(self) -> None:
        """We are ending anyway."""
        self._heeded = True

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._asked is not None:
            os._exit(128 + number)
        self._asked = number


def ourselves(lease_s: float) -> Caller:
    pid = os.getpid()
    return Caller(host=env.hostname(), boot=env.boot(), pid=pid, ticks=env.start_ticks(pid) or 0, lease_s=lease_s)


class Presence:
    """A thread that beats for a job: whatever else waits here, its reader or the queue, we are alive."""

    def __init__(self, queue: Client, job: int, beat_s: float) -> None:
        self._queue, self._job, self._beat_s = queue, job, beat_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="covey-caller", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            with contextlib.suppress(CoveyError, OSError):  # away for a moment: the lease is longer than a beat
                self._queue.still_here(self._job)

    def close(self) -> None:
        """It beats no longer."""
        self._over.set()
        self._thread.join(CLOSE_S)
