"""huey on SQLite, with or without fsync, and on Redis."""

from __future__ import annotations

import logging
import os

from huey import RedisHuey, SqliteHuey

from .copies import CHUNK
from .peer import PLACE, TEXT, URL, VARIANT, Peer
from .trace import ran

NO_SYNC = VARIANT == "nosync"
POLL_S = 0.01

if URL:
    huey = RedisHuey("bench", url=URL, results=False)
else:
    huey = SqliteHuey("bench", filename=os.path.join(PLACE, "huey.db"), results=False, fsync=not NO_SYNC, cache_mb=64)


@huey.task()
def noop(n, text):
    ran(n)


class Queue(Peer):
    packages = ("huey",)
    settings = "a thread a process, no results" + (
        "" if URL else f", synchronous={'OFF' if NO_SYNC else 'FULL'}, polls every {POLL_S * 1e3:g} ms"
    )
    crash = "at most once: the job is gone when it is taken"
    power = "a second" if URL else "much, even the file: nothing is synced" if NO_SYNC else "nothing"
    keeps = "nothing"

    def one(self, n):
        noop(n, TEXT)

    def fill(self, count):
        """Bulk is not part of its interface."""
        data = huey.serialize_task(noop.s(1, TEXT))
        if URL:
            for first in range(0, count, CHUNK):
                huey.storage.conn.lpush(huey.storage.queue_key, *[data] * min(CHUNK, count - first))
        else:
            with huey.storage.db(commit=True) as cursor:
                rows = ((huey.storage.name, data, 0) for _ in range(count))
                cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)

    def left(self):
        return huey.storage.queue_size()

    def work(self):
        logging.disable(logging.CRITICAL)
        huey.create_consumer(
            workers=1, worker_type="thread", periodic=False, initial_delay=POLL_S, max_delay=POLL_S,
            check_worker_health=False,
        ).run()  # fmt: skip
