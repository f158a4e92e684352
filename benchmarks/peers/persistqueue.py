"""persist-queue: SQLiteAckQueue, a queue in a file, without workers of its own."""

from __future__ import annotations

import os
import pickle
import sqlite3
import time

from persistqueue import Empty, SQLiteAckQueue

from .peer import PLACE, TEXT, Peer
from .trace import ran

POLL_S = 0.01
FILE = os.path.join(PLACE, "persist")


class Queue(Peer):
    packages = ("persist-queue",)
    settings = f"SQLiteAckQueue, WAL, a loop of get and ack, polls every {POLL_S * 1e3:g} ms"
    crash = "the job waits for the next start of a queue with auto_resume"
    power = "nothing"
    keeps = "the row, until cleared"

    def __init__(self):
        # Resuming takes from a running worker what it holds.
        self.queue = SQLiteAckQueue(FILE, multithreading=True, auto_resume=False)

    def one(self, n):
        self.queue.put([n, TEXT])

    def fill(self, count):
        """Bulk is not part of its interface."""
        rows = ((pickle.dumps([1, TEXT]), time.time()) for _ in range(count))
        with sqlite3.connect(os.path.join(FILE, "data.db")) as db:
            db.executemany("insert into ack_queue_default (data, timestamp, status) values (?, ?, 0)", rows)
        db.close()

    def left(self):
        db = sqlite3.connect(os.path.join(FILE, "data.db"))
        (count,) = db.execute("select count(*) from ack_queue_default where status < 5").fetchone()
        db.close()
        return count

    def work(self):
        while True:
            try:
                item = self.queue.get(block=False, raw=True)
            except Empty:
                time.sleep(POLL_S)
                continue
            ran(item["data"][0])
            self.queue.ack(id=item["pqid"])
