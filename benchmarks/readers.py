"""Readers beside work: enqueues at a server with a million jobs, with and without forty streams; what those cost idle.

Server, streams and the client share the machine's cores. Blocks with and without streams take turns on one server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import psycopg

from covey.core.model import Spec
from covey.open import open_engine
from covey.remote.remote import Remote

from . import ground, postgres, tasks
from .remote import Server
from .report import Figure
from .timing import alternate, percentile

NAME = "readers"
STREAMS = 40
GAP_S = 0.01
SLOW = "/v1/status"  # a look at every row

FILL = """
insert into covey.jobs (queue, kind, task, state, seq, max_attempts, created_at, updated_at, root_id,
                        fence, attempts, claimed_at, started_at, finished_at, worker)
select 'q' || n %% 4, 'sync', 'noop', case when n %% 2 = 0 then 'pending' else 'completed' end, n, 3, 1, 1, n,
       n %% 2, n %% 2, nullif(n %% 2, 0), nullif(n %% 2, 0), nullif(n %% 2, 0), case when n %% 2 = 1 then 'w1' end
from generate_series(1, %s) n
"""


def run(quick: bool) -> Iterator[Figure]:
    jobs = 100_000 if quick else 1_000_000
    with ground.scratch() as place:
        url = ground.new_queue(place)
        ground.fill(url, jobs // 2, queues=4)
        ground.fill(url, jobs // 2, queues=4, ended=True)
        with Server(url) as server:
            yield from _measure(server, "SQLite", jobs, quick, lambda: [server.process.pid])
    with postgres.fresh() as database:
        open_engine(database.url()).close()
        with psycopg.connect(database.admin_url, autocommit=True) as db:
            db.execute("insert into covey.queues (name, created_at) select 'q' || n, 1 from generate_series(0, 3) n")
            db.execute(FILL, (jobs,))
            db.execute("vacuum analyze")
        with Server(database.url(), log=os.path.join(database.directory, "server.log")) as server:
            yield from _measure(
                server, "PostgreSQL", jobs, quick, lambda: [server.process.pid, *_backends(database.admin_url)]
            )


def _measure(server: Server, store: str, jobs: int, quick: bool, pids: Callable[[], list[int]]) -> Iterator[Figure]:
    rounds, size, seconds = (4, 60, 5.0) if quick else (8, 250, 20.0)
    took: dict[str, list[float]] = {"alone": [], "streams": [], "slow": []}
    remote = Remote(server.url)
    _block(remote, 20)

    def alone() -> float:
        took["alone"] += (block := _block(remote, size))
        return percentile(block, 0.99)

    def among(what: str, *words: str) -> Callable[[], float]:
        def measured() -> float:
            with _others(server.url, *words):
                took[what] += (block := _block(remote, size))
            return percentile(block, 0.99)

        return measured

    alternate(rounds, alone, among("streams", "stream", str(STREAMS)), among("slow", "ask", "4"))
    remote.close()
    for what, words in (("streams", f"{STREAMS} streams"), ("slow", f"4 clients that ask for {SLOW} all the time")):
        for share, need in ((0.5, None), (0.99, ("≤", 2.0) if what == "streams" else None)):
            yield Figure(
                NAME, f"{store}, {jobs:,} jobs, {words}: enqueue p{share * 100:g}", percentile(took[what], share),
                percentile(took["alone"], share), "ms", "without them", need,
            )  # fmt: skip
    with _others(server.url, "stream", str(STREAMS)):
        time.sleep(2.0)
        before = _cpu(pids())
        time.sleep(seconds)
        busy = (_cpu(pids()) - before) / seconds * 100
    yield Figure(
        NAME, f"{store}, {STREAMS} idle streams: CPU", busy, 100, "%", "one core", ("≤", 0.05),
        note="server and database" if store != "SQLite" else "",
    )  # fmt: skip


def _block(remote: Remote, size: int) -> list[float]:
    """Milliseconds of each enqueue."""
    specs = [Spec(task="noop", kind="sync", args=json.dumps([1, tasks.TEXT]))]
    taken = []
    for _ in range(size):
        time.sleep(GAP_S)
        before = time.perf_counter()
        remote.enqueue(specs)
        taken.append((time.perf_counter() - before) * 1e3)
    return taken


def _backends(url: str) -> list[int]:
    with psycopg.connect(url) as db:
        return [row[0] for row in db.execute("select pid from pg_stat_activity where pid <> pg_backend_pid()")]


def _cpu(pids: list[int]) -> float:
    found = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            found += times.user + times.system
    return found


# ── the readers, in a process of their own ──────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _others(url: str, *words: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.readers", url, *words], stdout=subprocess.PIPE, cwd=ground.ROOT,
        env=ground.environ(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def _follow(host: str, port: int, begun: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"event: queues")
    begun.release()
    while await reader.read(1 << 16):
        pass
    raise RuntimeError("a stream ended")


async def _ask(host: str, port: int, begun: asyncio.Semaphore) -> None:
    begun.release()
    while True:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET {SLOW} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        await reader.read()
        writer.close()


async def _be_there(url: str, what: str, count: int) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    begun = asyncio.Semaphore(0)
    act = _follow if what == "stream" else _ask
    there = [asyncio.ensure_future(act(host, int(port), begun)) for _ in range(count)]
    for _ in range(count):
        await begun.acquire()
    print("ready", flush=True)
    await asyncio.gather(*there)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_be_there(sys.argv[1], sys.argv[2], int(sys.argv[3])))
