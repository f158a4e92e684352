"""What the comparison asks of a queue. Any method may be a coroutine."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable
from typing import Any

PLACE = os.environ.get("COMPARE_PLACE", ".")  # a directory of this run's own
URL = os.environ.get("COMPARE_URL", "")  # the server's, where the queue needs one
VARIANT = os.environ.get("COMPARE_VARIANT", "")  # of those settings that the module knows
TEXT = "a payload of about a hundred bytes, which is what a job with two ids and a path would carry"


class Peer:
    packages: tuple[str, ...] = ()  # whose versions are told
    settings = ""  # what is set, beyond defaults
    crash = ""  # what becomes of a job whose worker is killed
    power = ""  # what a power cut may take although the enqueue had returned
    keeps = ""  # what is left of a job that has ended

    def open(self) -> Awaitable[None] | None:
        """Tables are there; jobs can be enqueued."""

    def one(self, n: int) -> Any:
        """One more job is waiting, with ``n`` and TEXT as its arguments."""
        raise NotImplementedError

    many: Any = None  # (count): as many, by the call for bulk that the queue offers, if it offers one

    def fill(self, count: int) -> Any:
        """As many are waiting, as ``one`` would have left them, by the quickest way there is."""
        return self.many(count)

    def left(self) -> Any:
        """How many have not ended."""
        raise NotImplementedError

    def work(self) -> Any:
        """Jobs are run until the process is terminated."""
        raise NotImplementedError

    def commands(self, workers: int) -> list[list[str]]:
        """What to start for so many workers; one command, where the queue's own starts them all."""
        name = type(self).__module__.rpartition(".")[2]
        return [[sys.executable, "-m", "benchmarks.peers.work", name]] * workers
