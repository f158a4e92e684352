"""What running tasks ask of the queue: the store thread answers it between two turns."""

from __future__ import annotations

import contextlib
import threading

import msgspec

from ..core.ports import Source
from ..errors import CoveyError
from ..worker import messages
from .worker_process import WorkerProcess


class Asking:
    def __init__(self, source: Source) -> None:
        self._source = source
        self.lock = threading.Lock()  # the pool's: nobody may close a worker's socket while an answer goes into it
        self._open: list[tuple[WorkerProcess, messages.Ask]] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def put(self, worker: WorkerProcess, asked: messages.Ask) -> None:
        """It is answered soon. Under the lock."""
        self._open.append((worker, asked))
        self._source.wake()

    def answer(self, pool: int) -> None:
        """Everybody has an answer: JSON, or None if there is none to be had. Takes the lock, but not while it asks."""
        with self.lock:
            asked, self._open = self._open, []
            runs = [worker.assignments.get(ask.serial) for worker, ask in asked]
        for (worker, ask), run in zip(asked, runs, strict=True):
            text = None
            if run is not None:
                with contextlib.suppress(CoveyError, OSError):
                    found = self._source.failed_siblings(pool, run.claim.id, run.claim.fence)
                    text = msgspec.json.encode(found)
            with self.lock, contextlib.suppress(OSError):  # it is gone, or does not listen: it has a clock of its own
                messages.send_answer(worker.reports, ask.number, text)
