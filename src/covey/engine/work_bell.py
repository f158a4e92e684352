"""How a pool waits for work: the bell and a slow poll; where no bell can be hung, polls that slacken."""

from __future__ import annotations

import threading
import time
from typing import Any

from ..core.model import Kind
from ..core.ports import Listener
from ..store.store import Store

PATIENT_POLLS = 50  # empty polls before the pace slackens
SLACKEN = 1.2


class WorkBell:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._listener: Listener | None = None
        self._listening = threading.Lock()
        self._cannot_listen = False
        self._empty_polls = 0
        self._poll_s = 0.0
        self._least_s, self._most_s = 0.1, 1.0  # between two looks

    def close(self) -> None:
        if self._listener:
            self._listener.close()
            self._listener = None

    def set_pace(self, settings: dict[str, Any]) -> None:
        self._least_s, self._most_s = settings["poll_seconds"], settings["max_poll_seconds"]

    def there_was_work(self) -> None:
        self._empty_polls = 0

    def wait(
        self, pool: int, queues: tuple[str, ...] | None, timeout_s: float, kinds: tuple[Kind, ...] | None = None
    ) -> bool:
        """Rung, or time to look again: adaptive where no bell can be hung, else the bell and a slow poll."""
        listener = self._listen()
        if listener is None:
            time.sleep(min(timeout_s, self._pace()))
            return True
        return listener.wait(min(timeout_s, self._most_s))

    def wake(self) -> None:
        if listener := self._listen():
            listener.wake()

    def _listen(self) -> Listener | None:
        with self._listening:  # `wait` and `wake` come from two threads
            if self._listener is None and not self._cannot_listen:
                try:
                    self._listener = self._store.listen("pool")
                except OSError:
                    self._cannot_listen = True
            return self._listener

    def _pace(self) -> float:
        self._empty_polls += 1
        if self._empty_polls <= PATIENT_POLLS:
            self._poll_s = self._least_s
        else:
            self._poll_s = min(self._poll_s * SLACKEN, self._most_s)
        return self._poll_s
