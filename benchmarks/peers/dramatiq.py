"""Dramatiq on Redis, its own command line."""

from __future__ import annotations

import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from .copies import in_redis
from .peer import TEXT, URL, Peer
from .trace import ran

THREADS = 8
broker = RedisBroker(url=URL or "redis://127.0.0.1")
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(n, text):
    ran(n)


class Queue(Peer):
    packages = ("dramatiq", "redis")
    settings = f"--processes 1 or 2, --threads {THREADS}, no results"
    crash = "at least once: runs again once the heartbeat is missed (a minute)"
    power = "a second"
    keeps = "nothing"

    def one(self, n):
        noop.send(n, TEXT)

    def fill(self, count):
        """Bulk is not part of its interface."""
        stored = noop.message(1, TEXT).copy(options={"redis_message_id": "its-id"}).encode()

        def write(pipe, id):
            pipe.hset("dramatiq:default.msgs", id, stored.replace(b"its-id", id.encode()))
            pipe.rpush("dramatiq:default", id)

        broker.declare_queue("default")
        in_redis(broker.client, count, write)

    def left(self):
        return broker.client.hlen("dramatiq:default.msgs")

    def commands(self, workers):
        words = ["benchmarks.peers.dramatiq", "--processes", str(workers), "--threads", str(THREADS)]
        return [[sys.executable, "-m", "dramatiq", *words]]
