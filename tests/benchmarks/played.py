"""A queue that is played: jobs are lines of a file, workers take them under a lock. COMPARE_VARIANT says what is wrong:

twice     each job is run twice
alone     a single worker ends at once
deaf      every worker ends at once
refuses   no job can be enqueued one by one
single    it has no call for bulk
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.peer import PLACE, VARIANT, Peer
from benchmarks.peers.trace import ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.contest import Contestant

JOBS, DONE = Path(PLACE, "jobs"), Path(PLACE, "done")


class Queue(Peer):
    settings = f"played {VARIANT}".strip()
    crash, power, keeps = "who knows", "everything", "a line"

    def open(self) -> None:
        JOBS.touch()
        DONE.touch()

    def one(self, n: int) -> None:
        if VARIANT == "refuses":
            raise RuntimeError("not today,\nand not tomorrow")
        self._append([n])

    def fill(self, count: int) -> None:
        self._append(list(range(count)))

    many = None if VARIANT == "single" else fill

    def _append(self, numbers: list[int]) -> None:
        with JOBS.open("a") as jobs:
            jobs.write("".join(f"{n}\n" for n in numbers))

    def left(self) -> int:
        return JOBS.read_text().count("\n") - DONE.read_text().count("\n")

    def commands(self, workers: int) -> list[list[str]]:
        ends = VARIANT == "deaf" or (VARIANT == "alone" and workers == 1)
        return [[sys.executable, "-m", __spec__.name, "end" if ends else "work"]] * workers

    def work(self) -> None:
        while True:
            with _locked():
                taken = JOBS.read_text().split()[DONE.read_text().count("\n") :][:1]
                for n in taken:
                    for _ in range(2 if VARIANT == "twice" else 1):
                        ran(int(n))
                    with DONE.open("a") as done:
                        done.write(f"{n} {sys.dont_write_bytecode}\n")
            if not taken:
                time.sleep(0.005)


@contextmanager
def _locked() -> Iterator[None]:
    with open(os.path.join(PLACE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Entry:
    """In the list of contestants."""

    variant: str = ""

    def ready(self) -> Contestant:
        return contestant(self.variant)


def contestant(variant: str = "") -> Contestant:
    from benchmarks.contest import Contestant

    class Played(Contestant):
        def producer(self) -> list[str]:
            return [str(self.python), "-m", __name__]

    return Played("played", Path(sys.executable), variant)


if __name__ == "__main__":
    if sys.argv[1:] == ["end"]:
        sys.exit("the worker has no ears")
    if sys.argv[1:] == ["work"]:
        Queue().work()
    from benchmarks.peers.produce import produce

    asyncio.run(produce(Queue()))
