"""arq: coroutines, Redis."""

from __future__ import annotations

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.constants import default_queue_name, job_key_prefix
from arq.jobs import serialize_job
from arq.utils import timestamp_ms
from arq.worker import Worker
from redis import Redis

from .copies import in_redis
from .peer import TEXT, URL, Peer
from .trace import ran

JOBS = 20
POLL_S = 0.01
A_DAY_MS = 86_400_000


async def noop(ctx, n, text):
    ran(n)


class Queue(Peer):
    packages = ("arq", "redis")
    settings = f"max_jobs {JOBS}, polls every {POLL_S * 1e3:g} ms (its default is 500), no results"
    crash = "at least once: runs again when its key has expired (job_timeout and 10 s)"
    power = "a second"
    keeps = "nothing (keep_result=0)"

    async def open(self):
        self.pool = await create_pool(RedisSettings.from_dsn(URL))
        self.client = Redis.from_url(URL)

    async def one(self, n):
        await self.pool.enqueue_job("noop", n, TEXT)

    def fill(self, count):
        """Bulk is not part of its interface."""
        now = timestamp_ms()
        job = serialize_job("noop", (1, TEXT), {}, None, now)

        def write(pipe, id):
            pipe.psetex(job_key_prefix + id, A_DAY_MS, job)
            pipe.zadd(default_queue_name, {id: now})

        in_redis(self.client, count, write)

    def left(self):
        return self.client.zcard(default_queue_name)

    def work(self):
        Worker(
            functions=[func(noop, name="noop", keep_result=0)], redis_settings=RedisSettings.from_dsn(URL),
            max_jobs=JOBS, poll_delay=POLL_S, log_results=False,
        ).run()  # fmt: skip
