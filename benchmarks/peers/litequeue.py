"""litequeue: a queue in a file, without workers of its own."""

from __future__ import annotations

import json
import os
import time

from litequeue import LiteQueue, uuid7

from .peer import PLACE, TEXT, Peer
from .trace import ran

POLL_S = 0.01


class Queue(Peer):
    packages = ("litequeue",)
    settings = f"WAL, synchronous=NORMAL (its own), a loop of pop and done, polls every {POLL_S * 1e3:g} ms"
    crash = "the job stays locked until somebody unlocks it"
    power = "the last commits"
    keeps = "the row, until pruned"

    def __init__(self):
        self.queue = LiteQueue(os.path.join(PLACE, "litequeue.db"))

    def one(self, n):
        self.queue.put(json.dumps([n, TEXT]))

    def many(self, count):
        with self.queue.transaction():
            for n in range(count):
                self.one(n)

    def fill(self, count):
        rows = ((json.dumps([1, TEXT]), uuid7(), time.time_ns()) for _ in range(count))
        with self.queue.transaction():
            sql = f"insert into {self.queue.table} (data, message_id, status, in_time) values (?, ?, 0, ?)"
            self.queue.conn.executemany(sql, rows)

    def left(self):
        (count,) = self.queue.conn.execute(f"select count(*) from {self.queue.table} where status < 2").fetchone()
        return count

    def work(self):
        while True:
            message = self.queue.pop()
            if message is None:
                time.sleep(POLL_S)
                continue
            n, _ = json.loads(message.data)
            ran(n)
            self.queue.done(message.message_id)
