"""taskiq on a Redis stream, its own command line."""

from __future__ import annotations

import sys

from redis import Redis
from taskiq_redis import RedisStreamBroker

from .copies import in_redis
from .peer import TEXT, URL, Peer
from .trace import ran

broker = RedisStreamBroker(url=URL or "redis://127.0.0.1")
TASKS = 100


@broker.task(task_name="noop")
async def noop(n: int, text: str) -> None:
    ran(n)


class Queue(Peer):
    packages = ("taskiq", "taskiq-redis", "redis")
    settings = f"RedisStreamBroker, --workers 1 or 2, --max-async-tasks {TASKS}, no results"
    crash = "at least once: claimed by another after 10 minutes (idle_timeout)"
    power = "a second"
    keeps = "the entry in the stream (no maxlen)"

    async def open(self):
        await broker.startup()
        self.client = Redis.from_url(URL)

    async def one(self, n):
        await noop.kiq(n, TEXT)

    async def fill(self, count):
        """Bulk is not part of its interface."""
        task = await noop.kiq(1, TEXT)
        ((_, stored),) = self.client.xrange("taskiq", count=1)
        old = task.task_id.encode()

        def write(pipe, id):
            pipe.xadd(
                "taskiq", {name: value.replace(old, id.replace("-", "").encode()) for name, value in stored.items()}
            )

        in_redis(self.client, count - 1, write)

    def left(self):
        (group,) = self.client.xinfo_groups("taskiq")
        return group["lag"] + group["pending"]

    def commands(self, workers):
        words = ["worker", "benchmarks.peers.taskiq:broker", "--workers", str(workers), "--log-level", "ERROR"]
        words += ["--max-async-tasks", str(TASKS)]
        return [[sys.executable, "-m", "taskiq", *words]]
