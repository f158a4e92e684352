"""Covey itself, on a SQLite file or on PostgreSQL.

Workers import this module, so the producer's needs are imported where they are used, as an app would have it.
"""

from __future__ import annotations

import os
import sys
import time

from covey import Covey

from .copies import count_in_postgres
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

    def open(self) -> None:
        from covey.open import open_engine

        open_engine(os.environ["COVEY_DB"]).close()

    def one(self, n: int) -> None:
        noop.enqueue(n, TEXT)

    def many(self, count: int) -> None:
        noop.enqueue_many(noop.call(n, TEXT) for n in range(count))

    def fill(self, count: int) -> None:
        if not URL:
            from .. import ground

            ground.fill(os.environ["COVEY_DB"], count, task=noop)
            return
        import psycopg

        given = {"count": count, "now": time.time_ns() // 1000, "task": noop.name, "args": noop.call(1, TEXT).args}
        with psycopg.connect(URL) as db:
            db.execute("insert into covey.queues (name, created_at) values ('default', 0) on conflict do nothing")
            db.execute(FILL, given)
            db.execute(FILL_PAYLOADS, given)
        with psycopg.connect(URL, autocommit=True) as db:
            db.execute("analyze")

    def left(self) -> int:
        if URL:
            return count_in_postgres(URL, LEFT.format("covey."))
        from .. import ground

        db = ground.connect(os.environ["COVEY_DB"])
        count = int(db.execute(LEFT.format("")).get)
        db.close()
        return count

    def commands(self, workers: int) -> list[list[str]]:
        words = ["worker", "start", "--count", str(workers), "--app", "benchmarks.peers.covey:app"]
        return [[sys.executable, "-m", "covey", *words, "--quiet", "--db", os.environ["COVEY_DB"]]]
