"""Pick-up: from the enqueue call until the task starts in another process, the pool idle.

The floor is the least that any queue on this file must do: commit the row, tell another process by a datagram, and
commit the claim there.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Iterator

from . import ground, raw, tasks
from .report import Figure
from .timing import median, percentile

NAME = "pickup"
GAP_S = 0.02  # between two jobs: the pool has nothing to do again


def run(quick: bool) -> Iterator[Figure]:
    blocks, size = (5, 20) if quick else (20, 25)
    mine: list[float] = []
    floor: list[float] = []
    with ground.scratch() as place:
        url, theirs = ground.new_queue(place), ground.new_queue(place, "floor.db")
        bell = str(place / "bell")
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        claimer = spawn.Process(target=_claim, args=(theirs, os.path.relpath(bell), there), daemon=True)
        claimer.start()
        assert here.recv() == "ready"
        ground.use(url)
        db = ground.connect(theirs)
        out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        out.connect(os.path.relpath(bell))
        with ground.Pool(url, count=2) as pool:
            pool.until_ready(url, 4)
            time.sleep(1)
            for _ in range(3):
                _ours()
            for _ in range(blocks):
                mine += [_ours() for _ in range(size)]
                floor += [_floor(db, out, here) for _ in range(size)]
        claimer.terminate()
        db.close()
    yield Figure(
        NAME, f"p50 of {len(mine)}", median(mine), median(floor), "ms", "commit + datagram + claim commit", ("≤", 3)
    )
    yield Figure(NAME, "p99", percentile(mine, 0.99), percentile(floor, 0.99), "ms", "the same", ("≤", 10))


def _ours() -> float:
    """Milliseconds from the call to the first line of the task."""
    time.sleep(GAP_S)
    before = time.monotonic_ns()
    job = tasks.clock.enqueue(1)
    return (job.result(timeout=30) - before) / 1e6


def _floor(db, out: socket.socket, here) -> float:  # type: ignore[no-untyped-def]
    time.sleep(GAP_S)
    before = time.monotonic_ns()
    raw.insert_one(db, "default", "floor", "[[1],{}]")
    out.send(b"!")
    return (here.recv() - before) / 1e6


def _claim(url: str, bell: str, answers) -> None:  # type: ignore[no-untyped-def]
    """The other process: rung, it claims what is there; the instant at which that is on disk."""
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(bell)
    db = ground.connect(url)
    answers.send("ready")
    while True:
        ear.recv(16)
        rows = raw.claim(db, "default", 1)
        started = time.monotonic_ns()
        answers.send(started)
        raw.finish(db, rows)
