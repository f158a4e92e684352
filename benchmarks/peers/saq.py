"""SAQ: coroutines, Redis."""

from __future__ import annotations

from redis import Redis
from saq import Queue as SaqQueue
from saq import Worker

from .copies import in_redis
from .peer import TEXT, URL, Peer
from .trace import ran

CONCURRENCY = 10


async def noop(ctx, *, n, text):
    ran(n)


class Queue(Peer):
    packages = ("saq", "redis")
    settings = f"concurrency {CONCURRENCY}, no results"
    crash = "at most once unless retries are set: aborted by the sweep (a minute)"
    power = "a second"
    keeps = "nothing (ttl=-1)"

    async def open(self):
        self.queue = SaqQueue.from_url(URL)
        await self.queue.connect()
        self.client = Redis.from_url(URL)

    async def one(self, n):
        return await self.queue.enqueue("noop", n=n, text=TEXT, ttl=-1)

    async def fill(self, count):
        """Bulk is not part of its interface."""
        first = await self.one(0)
        stored = self.client.get(first.id).decode()

        def write(pipe, key):
            id = first.id.replace(first.key, key)
            pipe.set(id, stored.replace(first.key, key))
            pipe.zadd("saq:default:incomplete", {id: 0})
            pipe.rpush("saq:default:queued", id)

        in_redis(self.client, count - 1, write)

    async def left(self):
        return await self.queue.count("incomplete")

    async def work(self):
        worker = Worker(SaqQueue.from_url(URL), functions=[("noop", noop)], concurrency=CONCURRENCY)
        await worker.start()
