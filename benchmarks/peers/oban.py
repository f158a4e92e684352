"""oban (Oban for Python): coroutines, psycopg."""

from __future__ import annotations

import asyncio

from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from .copies import count_in_postgres, in_postgres
from .peer import TEXT, URL, Peer
from .trace import ran

LIMIT = 100


@worker(queue="default")
class Noop:
    async def process(self, job):
        ran(job.args["n"])


class Queue(Peer):
    packages = ("oban", "psycopg")
    settings = f"limit {LIMIT}, coroutines"
    crash = "at least once: rescued after 5 minutes"
    power = "nothing"
    keeps = "the row, until pruned"

    async def open(self):
        self.pool = AsyncConnectionPool(URL, open=False)
        await self.pool.open()
        await install(self.pool)
        self.oban = Oban(pool=self.pool)

    async def one(self, n):
        await self.oban.enqueue(Noop.new({"n": n, "text": TEXT}))

    async def many(self, count):
        await self.oban.enqueue_many([Noop.new({"n": n, "text": TEXT}) for n in range(count)])

    async def fill(self, count):
        await self.one(0)
        in_postgres(URL, "oban_jobs", count)

    def left(self):
        return count_in_postgres(URL, "select count(*) from oban_jobs where state in ('available', 'executing')")

    async def work(self):
        async with AsyncConnectionPool(URL, open=False) as pool, Oban(pool=pool, queues={"default": LIMIT}):
            await asyncio.Event().wait()
