"""RQ: SimpleWorker, which runs jobs in its own process, or the default one, which forks for each."""

from __future__ import annotations

import rq
from redis import Redis

from .copies import in_redis
from .peer import TEXT, URL, VARIANT, Peer
from .trace import ran

FORKS = VARIANT == "fork"


def noop(n, text):
    ran(n)


class Queue(Peer):
    packages = ("rq", "redis")
    settings = ("Worker: a fork a job" if FORKS else "SimpleWorker: no fork") + ", no results"
    crash = "at most once unless Retry is set: failed when its heartbeat is missed"
    power = "a second"
    keeps = "nothing (result_ttl=0)"

    def __init__(self):
        self.client = Redis.from_url(URL)
        self.queue = rq.Queue("bench", connection=self.client)

    def one(self, n):
        return self.queue.enqueue(noop, n, TEXT, result_ttl=0)

    def many(self, count):
        self.queue.enqueue_many([rq.Queue.prepare_data(noop, (n, TEXT), result_ttl=0) for n in range(count)])

    def fill(self, count):
        stored = self.client.hgetall(self.one(0).key)

        def write(pipe, id):
            pipe.hset(f"rq:job:{id}", mapping=stored)
            pipe.rpush(self.queue.key, id)

        in_redis(self.client, count - 1, write)

    def left(self):
        return self.queue.count + self.queue.started_job_registry.count

    def work(self):
        kind = rq.Worker if FORKS else rq.SimpleWorker
        kind([self.queue], connection=self.client, log_job_description=False).work(logging_level="ERROR")
