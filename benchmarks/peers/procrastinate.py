"""Procrastinate: coroutines, psycopg."""

from __future__ import annotations

from procrastinate import App, PsycopgConnector

from .copies import count_in_postgres, in_postgres
from .peer import TEXT, URL, Peer
from .trace import ran

CONCURRENCY = 10
app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(name="noop")
async def noop(n, text):
    ran(n)


class Queue(Peer):
    packages = ("procrastinate", "psycopg")
    settings = f"concurrency {CONCURRENCY}, coroutines"
    crash = "the job stays doing until a task of yours retries stalled jobs"
    power = "nothing"
    keeps = "the row and its events"

    async def open(self):
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    async def one(self, n):
        await noop.defer_async(n=n, text=TEXT)

    async def many(self, count):
        await noop.batch_defer_async(*({"n": n, "text": TEXT} for n in range(count)))

    async def fill(self, count):
        await self.one(0)
        in_postgres(URL, "procrastinate_jobs", count)

    def left(self):
        return count_in_postgres(URL, "select count(*) from procrastinate_jobs where status in ('todo', 'doing')")

    async def work(self):
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY)
