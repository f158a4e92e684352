"""PgQueuer: coroutines, asyncpg."""

from __future__ import annotations

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from .copies import count_in_postgres, in_postgres
from .peer import TEXT, URL, Peer
from .trace import ran

BATCH = 100


class Queue(Peer):
    packages = ("pgqueuer", "asyncpg")
    settings = f"batch_size {BATCH}, coroutines"
    crash = "at least once: runs again when its heartbeat is missed (30 s)"
    power = "nothing"
    keeps = "a row in its log"

    async def _driver(self):
        return AsyncpgDriver(await asyncpg.connect(URL))

    async def open(self):
        self.queries = Queries(await self._driver())
        await self.queries.install()

    async def one(self, n):
        await self.queries.enqueue("noop", f"{n} {TEXT}".encode(), 0)

    async def many(self, count):
        await self.queries.enqueue(["noop"] * count, [f"{n} {TEXT}".encode() for n in range(count)], [0] * count)

    async def fill(self, count):
        await self.one(0)
        in_postgres(URL, "pgqueuer", count)

    def left(self):
        return count_in_postgres(URL, "select count(*) from pgqueuer")

    async def work(self):
        app = PgQueuer(await self._driver())

        @app.entrypoint("noop")
        async def noop(job):
            ran(int(job.payload.split(maxsplit=1)[0]))

        await app.run(batch_size=BATCH)
