"""python -m benchmarks.peers.work NAME: one worker. It imports nothing that the queue does not need."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    done = importlib.import_module(f"{__package__}.{sys.argv[1]}").Queue().work()
    if done is not None:
        import asyncio

        asyncio.run(done)
