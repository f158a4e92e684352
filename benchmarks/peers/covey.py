"""Covey itself, on a SQLite file or on PostgreSQL."""

from __future__ import annotations

import os
import sys
import time

import psycopg

from covey import Covey

from .. import ground
from .peer import PLACE, TEXT, URL, Peer
from .trace import ran

os.environ["COVEY_DB"] = URL or os.path.join(PLACE, "queue.db")
os.environ["XDG_STATE_HOME"] = PLACE
app = Covey()

FILL = """
insert into covey.jobs (queue, kind, task, state, seq, max_attempts, created_at, updated_at, root_id, id)
select 'default', 'sync', %(task)s, 'pending', n, 3, %(now)s, %(now)s, n, n
from (select nextval('covey.jobs_id_seq') n from generate_series(1, %(count)s)) as numbers
"""
FILL_PAYLOADS = "insert into covey.payloads (job_id, args) select id, %(args)s from covey.jobs"
LEFT = "select count(*) from {}jobs where state = 'pending' or pool is not null"


@app.task
def noop(n: int, text: str) -> None:
    ran(n)


class Queue(Peer):
    packages = ("covey", "psycopg") if URL else ("covey", "apsw")
    settings = "one pool, --count 1 or 2"
    crash = "at least once: runs again at once"
    power = "nothing"
    keeps = "the row and its run, until pruned"
    supervises = True

    def open(self) -> None:
        ground.open_engine(os.environ["COVEY_DB"]).close()

    def one(self, n: int) -> None:
        noop.enqueue(n, TEXT)

    def many(self, count: int) -> None:
        noop.enqueue_many(noop.call(n, TEXT) for n in range(count))

    def fill(self, count: int) -> None:
        if not URL:
            ground.fill(os.environ["COVEY_DB"], count, task=noop)
            return
        given = {"count": count, "now": time.time_ns() // 1000, "task": noop.name, "args": noop.call(1, TEXT).args}
        with psycopg.connect(_plain(URL)) as db:
            db.execute("insert into covey.queues (name, created_at) values ('default', 0) on conflict do nothing")
            db.execute(FILL, given)
            db.execute(FILL_PAYLOADS, given)
        with psycopg.connect(_plain(URL), autocommit=True) as db:
            db.execute("analyze")

    def left(self) -> int:
        if not URL:
            db = ground.connect(os.environ["COVEY_DB"])
            return int(db.execute(LEFT.format("")).get)
        with psycopg.connect(_plain(URL)) as db:
            return int(db.execute(LEFT.format("covey.")).fetchone()[0])

    def work(self, workers: int) -> None:
        words = ["worker", "start", "--count", str(workers), "--app", "benchmarks.peers.covey:app", "--quiet"]
        os.execv(sys.executable, [sys.executable, "-m", "covey", *words])


def _plain(url: str) -> str:
    """The URL as PostgreSQL knows it: without the schema."""
    return url.replace("&schema=covey", "")
