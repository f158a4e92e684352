"""The gate: eight processes that each commit one insert at a time, by what keeps them apart.

none    SQLite's busy handler, which sleeps and retries
flock   one flock on a side file around each transaction
fcntl   one fcntl lock, the same way
covey   the two-stage fcntl gate of covey.store.sqlite.gate
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from covey.store.sqlite.gate import Gate

from . import ground, raw
from .report import Figure
from .timing import median, ratio_of_pairs

NAME = "gate"
WRITERS = 8
KINDS = ("none", "flock", "fcntl", "covey")


@dataclass(frozen=True)
class Contest:
    """What became of it: commits per process, the longest wait of any, commits a second of all."""

    counts: list[int]
    longest_s: float
    rate: float

    @property
    def fair(self) -> float:
        return sum(self.counts) / len(self.counts)


def run(quick: bool) -> Iterator[Figure]:
    seconds, rounds = (1.0, 2) if quick else (2.0, 3)
    alone: list[float] = []
    contests: dict[str, list[Contest]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        alone.append(contest("none", seconds, writers=1).rate)
        for kind, found in contests.items():
            found.append(contest(kind, seconds))
    for kind, found in contests.items():
        rates = [each.rate for each in found]
        least = median(min(each.counts) / each.fair for each in found)
        most = median(max(each.counts) / each.fair for each in found)
        longest = max(each.longest_s for each in found) * 1e3
        yield Figure(
            NAME, f"{WRITERS} writers, {kind}", median(rates), median(alone), "/s", "one writer alone",
            note=f"least {least:.2f}, greatest {most:.2f} of fair, longest wait {longest:,.0f} ms",
            given=ratio_of_pairs(rates, alone),
        )  # fmt: skip


def contest(kind: str, seconds: float, writers: int = WRITERS) -> Contest:
    """Every writer inserts for that long."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        spawn = multiprocessing.get_context("spawn")
        start, results = spawn.Barrier(writers), spawn.Queue()
        children = [
            spawn.Process(target=_write, args=(url, kind, seconds, start, results), daemon=True) for _ in range(writers)
        ]
        for child in children:
            child.start()
        told = [results.get(timeout=60 + seconds) for _ in children]
        for child in children:
            child.join()
    counts = [count for count, _ in told]
    return Contest(counts, max(longest for _, longest in told), sum(counts) / seconds)


def _write(url: str, kind: str, seconds: float, start, results) -> None:  # type: ignore[no-untyped-def]
    db = ground.connect(url)
    db.set_busy_timeout(60_000)
    turnstile = _turnstile(kind, url + "-gate")
    count, longest = 0, 0.0
    start.wait()
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        with turnstile():
            db.execute("begin immediate")
            longest = max(longest, time.monotonic() - began)
            id = raw.next_id(db)
            db.execute(raw.INSERT_JOB, (id, "default", "gate", time.time_ns() // 1000))
            db.execute(raw.INSERT_PAYLOAD, (id, "[[1],{}]"))
            db.execute("commit")
        count += 1
    results.put((count, longest))
    results.close()
    results.join_thread()
    db.close()


def _turnstile(kind: str, path: str) -> Callable[[], AbstractContextManager[None]]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

    @contextlib.contextmanager
    def flock() -> Iterator[None]:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
        fcntl.flock(fd, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def record() -> Iterator[None]:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1)
        yield
        fcntl.lockf(fd, fcntl.LOCK_UN, 1)

    if kind == "covey":
        gate = Gate.of(path)

        @contextlib.contextmanager
        def covey() -> Iterator[None]:
            gate.enter(60)
            yield
            gate.leave()

        return covey
    return {"none": contextlib.nullcontext, "flock": flock, "fcntl": record}[kind]
