"""What SQLite itself can do with Covey's tables, written as well as we can: no pool, no workers, no checks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import apsw

READY = """
select id from jobs where state = 'pending' and queue = ? and kind = 'sync' order by priority desc, seq, id limit ?
"""
CLAIM = """
update jobs
set state = 'processing', pool = 1, fence = fence + 1, attempts = attempts + 1, claimed_at = :now, updated_at = :now
where id in (select value from json_each(:ids)) and state = 'pending'
returning id, fence, task, attempts, (select args from payloads where job_id = jobs.id)
"""
FINISH = """
update jobs
set state = 'completed', pool = null, worker = 'w1', started_at = :now, finished_at = :now, updated_at = :now
from json_each(:done) done
where jobs.id = done.value ->> 0 and jobs.fence = done.value ->> 1 and jobs.state = 'processing'
"""
INSERT_JOB = """
insert into jobs (id, queue, kind, task, state, priority, seq, max_attempts, created_at, updated_at, root_id)
values (?1, ?2, 'sync', ?3, 'pending', 0, ?1, 3, ?4, ?4, ?1)
"""
INSERT_PAYLOAD = "insert into payloads (job_id, args) values (?, ?)"


def drain(db: apsw.Connection, queue: str, batch: int = 100) -> int:
    """Every job of the queue is completed: each transaction finishes one batch and claims the next. How many."""
    done = 0
    held: list[tuple[int, int]] = []
    while True:
        now = time.time_ns() // 1000
        db.execute("begin immediate")
        if held:
            db.execute(FINISH, {"done": json.dumps(held), "now": now})
            done += len(held)
        held = _claim(db, queue, batch, now)
        db.execute("commit")
        if not held:
            return done


def claim(db: apsw.Connection, queue: str, batch: int) -> list[tuple[int, int]]:
    """The next jobs are ours, on disk: (id, fence) of each."""
    db.execute("begin immediate")
    held = _claim(db, queue, batch, time.time_ns() // 1000)
    db.execute("commit")
    return held


def finish(db: apsw.Connection, held: list[tuple[int, int]]) -> None:
    """These jobs are completed, on disk."""
    db.execute("begin immediate")
    db.execute(FINISH, {"done": json.dumps(held), "now": time.time_ns() // 1000})
    db.execute("commit")


def _claim(db: apsw.Connection, queue: str, batch: int, now: int) -> list[tuple[int, int]]:
    ids = [row[0] for row in db.execute(READY, (queue, batch))]
    if not ids:
        return []
    return [(row[0], row[1]) for row in db.execute(CLAIM, {"ids": json.dumps(ids), "now": now}).fetchall()]


def insert_one(db: apsw.Connection, queue: str, task: str, args: str) -> int:
    """One job is on disk."""
    db.execute("begin immediate")
    id = next_id(db)
    db.execute(INSERT_JOB, (id, queue, task, time.time_ns() // 1000))
    db.execute(INSERT_PAYLOAD, (id, args))
    db.execute("commit")
    return id


def insert_many(db: apsw.Connection, jobs: Iterable[tuple[Any, ...]], payloads: Iterable[tuple[Any, ...]]) -> None:
    """All of the rows are on disk, in one transaction."""
    db.execute("begin immediate")
    db.executemany(INSERT_JOB, jobs)
    db.executemany(INSERT_PAYLOAD, payloads)
    db.execute("commit")


def next_id(db: apsw.Connection) -> int:
    found = db.execute("select seq from sqlite_sequence where name = 'jobs'").get
    return (found or 0) + 1
