"""Celery on Redis: a pool of threads, or processes, which is its default."""

from __future__ import annotations

import json
from uuid import uuid4

from celery import Celery
from redis import Redis

from .copies import in_redis
from .peer import TEXT, URL, VARIANT, Peer
from .trace import ran

PREFORK = VARIANT == "prefork"
THREADS = 8
app = Celery("bench", broker=URL)
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(n, text):
    ran(n)


class Queue(Peer):
    packages = ("celery", "kombu", "redis")
    settings = ("prefork, a child each" if PREFORK else f"{THREADS} threads") + ", prefetch 64, no gossip or mingle"
    crash = "at most once: acknowledged before it runs (acks_late off, its default)"
    power = "a second"
    keeps = "nothing (results ignored)"

    def __init__(self):
        self.client = Redis.from_url(URL)

    def one(self, n):
        return noop.delay(n, TEXT)

    def fill(self, count):
        """Bulk is not part of its interface."""
        first = self.one(0)
        stored = self.client.lindex("celery", 0).decode()
        tag = json.loads(stored)["properties"]["delivery_tag"]

        def write(pipe, id):
            pipe.lpush("celery", stored.replace(first.id, id).replace(tag, f"t{id}"))

        in_redis(self.client, count - 1, write)

    def left(self):
        return self.client.llen("celery") + self.client.hlen("unacked")

    def work(self):
        pool = ["--pool", "prefork", "-c", "1"] if PREFORK else ["--pool", "threads", "-c", str(THREADS)]
        quiet = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "-n", f"{uuid4()}@bench"]
        app.worker_main(["worker", *pool, *quiet])
