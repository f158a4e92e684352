"""honker: a queue in a file; the loop of batches that it recommends for short jobs."""

from __future__ import annotations

import asyncio
import os

import honker

from .peer import PLACE, TEXT, Peer
from .trace import ran

BATCH = 100
WAIT_S = 0.005


class Queue(Peer):
    packages = ("honker",)
    settings = f"claim_batch and ack_batch of {BATCH}, polls every {WAIT_S * 1e3:g} ms"
    crash = "at least once: runs again when the claim has expired"
    power = "the last commits (synchronous=NORMAL)"
    keeps = "nothing"

    def __init__(self):
        self.db = honker.open(os.path.join(PLACE, "honker.db"))
        self.queue = self.db.queue("bench")

    def one(self, n):
        self.queue.enqueue({"n": n, "text": TEXT})

    def many(self, count):
        with self.db.transaction() as tx:
            for n in range(count):
                self.queue.enqueue({"n": n, "text": TEXT}, tx=tx)

    def left(self):
        return self.db.query("select count(*) as n from _honker_live where queue = 'bench'")[0]["n"]

    async def work(self):
        name = f"w{os.getpid()}"
        while True:
            jobs = self.queue.claim_batch(name, BATCH)
            for job in jobs:
                ran(job.payload["n"])
            if jobs:
                self.queue.ack_batch([job.id for job in jobs], name)
            else:
                await asyncio.sleep(WAIT_S)
