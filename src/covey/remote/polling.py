"""One long poll at a time, in a thread of its own: so whoever waits for it can be woken by another thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from ..core.bodies import Woken
from ..errors import CoveyError

PAUSE_S = (0.1, 5.0)  # after a poll that failed: first and longest

Ask = Callable[[], Woken]


class Poller:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ask: Ask | None = None  # what the thread shall ask next
        self._busy = False
        self._answer: Woken | None = None
        self._woken = False
        self._closed = False
        self._failures = 0
        self._thread: threading.Thread | None = None

    def wait(self, ask: Callable[[float], Woken], timeout_s: float) -> bool:
        """True once the answer is that something changed, or after `wake`; False after the time-out.

        An answer that nothing changed (our own turn ended the poll) is no reason to return: it is asked again.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._woken or self._closed:
                    self._woken = False
                    return True
                answer, self._answer = self._answer, None
                if answer is not None and answer.changed:
                    return True
                left_s = deadline - time.monotonic()
                if answer is not None and left_s <= 0:
                    return False
                if not self._busy:
                    self._begin(partial(ask, max(0.0, left_s)))
                elif left_s <= -1.0:
                    return False  # the answer is late; the next wait finds it
                self._changed.wait(max(0.0, left_s) + 1.0)

    def nap(self, timeout_s: float) -> bool:
        """The same without asking anybody."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._closed, timeout_s)
            woken, self._woken = self._woken or self._closed, False
            return woken

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self) -> None:
        if self._thread:
            self._thread.join(timeout=5)

    def _begin(self, ask: Ask) -> None:
        self._ask, self._busy = ask, True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="covey-poll", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ask is not None or self._closed)
                if self._closed:
                    return
                ask, self._ask = self._ask, None
            assert ask is not None
            try:
                answer, self._failures = ask(), 0
            except CoveyError:
                # The turn that follows finds out what is wrong, and says so.
                self._failures += 1
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._closed, min(PAUSE_S[0] * 2 ** min(self._failures, 10), PAUSE_S[1])
                    )
                answer = Woken(changed=True, seen=0)
            with self._changed:
                self._answer, self._busy = answer, False
                self._changed.notify_all()
