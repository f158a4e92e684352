"""python -m benchmarks.peers.produce NAME: the side that enqueues, run by the interpreter that has the queue."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import platform
import random
import sys
import time
from importlib import metadata
from typing import Any

from .peer import PLACE, Peer
from .trace import starts

GAP_S = 0.02  # between two jobs whose pick-up is measured: the workers have nothing to do again
WARM = 3  # of those, at the start, which do not count
LOST_S = 20.0


async def done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


class Producer:
    """Answers of the side that enqueues and looks."""

    def __init__(self, queue: Peer) -> None:
        self.queue = queue

    async def open(self) -> dict[str, Any]:
        await done(self.queue.open())
        said = ("settings", "crash", "power", "keeps")
        return {name: getattr(self.queue, name) for name in said} | {
            "python": platform.python_version(),
            "versions": {package: metadata.version(package) for package in self.queue.packages},
        }

    async def commands(self, workers: int) -> list[list[str]]:
        return self.queue.commands(workers)

    async def one(self, count: int, limit_s: float) -> float:
        """Jobs a second, enqueued one after the other, for no longer than that."""
        began = time.monotonic()
        for n in range(count):
            await done(self.queue.one(n))
            if (took := time.monotonic() - began) > limit_s:
                break
        return (n + 1) / took

    async def many(self, count: int) -> float | None:
        if self.queue.many is None:
            return None
        began = time.monotonic()
        await done(self.queue.many(count))
        return count / (time.monotonic() - began)

    async def fill(self, count: int) -> None:
        await done(self.queue.fill(count))

    async def left(self) -> int:
        return int(await done(self.queue.left()))

    async def pickup(self, count: int) -> list[float]:
        """Milliseconds from the call to the first line of the task."""
        took = []
        for n in range(1, count + WARM + 1):
            await asyncio.sleep(random.uniform(0.5, 1.5) * GAP_S)  # never in step with a queue that polls
            before = time.monotonic_ns()
            await done(self.queue.one(n))
            while (began := starts(PLACE).get(n)) is None:
                if time.monotonic_ns() - before > LOST_S * 1e9:
                    raise TimeoutError(f"job {n} had not begun after {LOST_S:g} s")
                await asyncio.sleep(0.001)
            took.append((began - before) / 1e6)
        return took[WARM:]


async def produce(queue: Peer) -> None:
    """One question a line, one answer a line. What a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    producer = Producer(queue)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            said = {"answer": await getattr(producer, asked.pop("ask"))(**asked)}
        except Exception as problem:
            logging.exception("the question failed")
            said = {"failed": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(produce(importlib.import_module(f"{__package__}.{sys.argv[1]}").Queue()))
