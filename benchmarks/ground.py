"""Where a measure takes place: scratch databases on the project's own disk, filled queues, pools as real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from covey.open import open_engine
from covey.task import Task

from . import tasks

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".bench"  # not /tmp, which may be memory: FULL would cost nothing there


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    PLACE.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="run-", dir=PLACE))
    try:
        yield path
    finally:
        tasks.app.close()
        shutil.rmtree(path, ignore_errors=True)


def new_queue(path: Path, name: str = "queue.db") -> str:
    """The path of a new, empty queue."""
    url = str(path / name)
    open_engine(url).close()
    return url


def use(url: str) -> None:
    """From now on the tasks' app enqueues there."""
    tasks.app.close()
    os.environ["COVEY_DB"] = url


def environ(**more: str) -> dict[str, str]:
    """What every process that is measured is started with: ours, but modules are kept as they were compiled.

    Where PYTHONDONTWRITEBYTECODE is set, each start compiles them again, and whoever has many would look slow.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | more


def connect(url: str) -> apsw.Connection:
    """A connection with the settings that Covey uses."""
    db = apsw.Connection(url)
    db.set_busy_timeout(10_000)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.pragma("wal_autocheckpoint", 5000)
    db.pragma("cache_size", -65536)
    db.pragma("foreign_keys", True)
    db.pragma("journal_size_limit", 64 << 20)
    return db


FILL = """
with recursive numbers (n) as (select :first union all select n + 1 from numbers where n < :last)
insert into jobs (id, queue, kind, task, state, seq, max_attempts, created_at, updated_at, root_id,
                  fence, attempts, claimed_at, started_at, finished_at, worker)
select n, :prefix || (n % :queues), 'sync', :task, :state, n, 3, :now, :now, n,
       :ended, :ended, iif(:ended, :now, null), iif(:ended, :now, null), iif(:ended, :now, null),
       iif(:ended, 'w1', null)
from numbers
"""
FILL_PAYLOADS = """
with recursive numbers (n) as (select :first union all select n + 1 from numbers where n < :last)
insert into payloads (job_id, args) select n, :args from numbers
"""


def fill(
    url: str, count: int, *, queues: int = 1, prefix: str = "q", ended: bool = False, task: Task[..., Any] = tasks.noop
) -> list[str]:
    """The queue holds ``count`` more no-op jobs, as `enqueue` would have written them; their queues' names."""
    db = connect(url)
    first = db.execute("select coalesce(max(id), 0) + 1 from jobs").get
    now = time.time_ns() // 1000
    common = {"first": first, "last": first + count - 1}
    names = [f"{prefix}{n}" for n in range(queues)]
    with db:
        db.executemany(
            "insert into queues (name, created_at) values (?, ?) on conflict do nothing",
            [(name, now) for name in names],
        )
        db.execute(
            FILL,
            common
            | {
                "prefix": prefix,
                "queues": queues,
                "task": task.name,
                "now": now,
                "ended": int(ended),
                "state": "completed" if ended else "pending",
            },
        )
        db.execute(FILL_PAYLOADS, common | {"args": task.call(1, tasks.TEXT).args})
    db.pragma("wal_checkpoint(truncate)")
    db.close()
    return names


class Pool:
    """A pool in a process of its own."""

    def __init__(
        self,
        url: str,
        *,
        count: int,
        queues: Sequence[str] = (),
        drain: bool = False,
        name: str = "bench",
        app: bool = True,
        log: str | None = None,
    ) -> None:
        command = [sys.executable, "-m", "covey", "worker", "start", "--count", str(count), "--name", name]
        command += ["--app", "benchmarks.tasks:app"] if app else []
        command += ["--drain"] if drain else []
        for queue in queues:
            command += ["--queue", queue]
        self.log = log or f"{url}.{name}.log"
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environ(COVEY_DB=url), stdout=file, stderr=file)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """The pool has let its jobs finish and is gone."""
        if not self.ended():
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def until_ready(self, url: str, workers: int, timeout_s: float = 30) -> None:
        """So many of its workers stand ready, as the store shows them."""
        engine = open_engine(url)
        try:
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline and not self.ended():
                mine = [pool for pool in engine.pool_views() if pool.pid == self.process.pid]
                if sum(worker.state == "idle" for pool in mine for worker in pool.workers) >= workers:
                    return
                time.sleep(0.05)
        finally:
            engine.close()
        raise RuntimeError(f"the pool did not start:\n{Path(self.log).read_text()[-2000:]}")
