"""chancy: coroutines (AsyncExecutor), psycopg."""

from __future__ import annotations

from chancy import Chancy, Worker
from chancy import Queue as ChancyQueue
from chancy.job import Job

from .copies import count_in_postgres, in_postgres
from .peer import TEXT, URL, Peer
from .trace import ran

CONCURRENCY = 100


async def noop(*, n, text):
    ran(n)


def job(n):
    return Job(func="benchmarks.peers.chancy.noop", kwargs={"n": n, "text": TEXT}, queue="default")


class Queue(Peer):
    packages = ("chancy", "psycopg")
    settings = f"AsyncExecutor, concurrency {CONCURRENCY}, eager polling"
    crash = "at least once: its recovery runs it again when the worker is missed"
    power = "nothing"
    keeps = "the row, until pruned"

    async def open(self):
        self.chancy = await Chancy(URL).__aenter__()
        await self.chancy.migrate()
        queue = ChancyQueue(
            "default", concurrency=CONCURRENCY, executor=Chancy.Executor.Async.value, eager_polling=True
        )  # fmt: skip
        await self.chancy.declare(queue, upsert=True)

    async def one(self, n):
        await self.chancy.push(job(n))

    async def many(self, count):
        async for _ in self.chancy.push_many([job(n) for n in range(count)]):
            pass

    async def fill(self, count):
        await self.one(0)
        in_postgres(URL, "chancy_jobs", count, new_id="gen_random_uuid()")

    def left(self):
        return count_in_postgres(URL, "select count(*) from chancy_jobs where state in ('pending', 'running')")

    async def work(self):
        async with Chancy(URL) as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()
