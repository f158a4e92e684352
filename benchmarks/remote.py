"""Over HTTP: drain and pick-up of a remote pool beside a local one, and what five hundred idle pools cost a server.

Server, pools, workers and clients share the machine's cores; the socket is the loopback's.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from covey.core import bodies, endpoints
from covey.core.turn import PoolInfo
from covey.remote.remote import Remote

from . import drain, ground, tasks
from .report import Figure
from .timing import alternate, median, percentile, ratio_of_pairs

NAME = "remote"
GAP_S = 0.02
IDLE = 500
BEAT_S = 10.0  # how often a real pool that has nothing to do asks again


def run(quick: bool) -> Iterator[Figure]:
    jobs, rounds = (10_000, 3) if quick else (30_000, 5)

    def local() -> float:
        with ground.scratch() as place:
            return drain.covey(place, jobs)[0]

    def remote() -> float:
        with ground.scratch() as place:
            return remote_drain(place, jobs)

    mine, theirs = alternate(rounds, remote, local)
    yield Figure(
        NAME, f"drain, {jobs:,} no-op tasks, 2 workers", median(mine), median(theirs), "jobs/s", "the same pool, local",
        ("≥", 0.4), given=ratio_of_pairs(mine, theirs),
    )  # fmt: skip
    yield from _pickup(quick)
    yield from _idle(quick)


class Server:
    def __init__(self, url: str, *, log: str | None = None) -> None:
        self.log = log or f"{url}.server.log"
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "covey", "server", "--db", url, "--port", "0"], env=ground.environ(),
                stdout=file, stderr=file,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while " at http" not in Path(self.log).read_text():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"the server did not start:\n{Path(self.log).read_text()[-2000:]}")
            time.sleep(0.02)
        self.url = Path(self.log).read_text().partition(" at ")[2].split()[0]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)


def remote_drain(place: Path, jobs: int) -> float:
    url = ground.new_queue(place)
    (queue,) = ground.fill(url, jobs)
    with (
        Server(url) as server,
        ground.Pool(server.url, count=2, queues=[queue], drain=True, log=f"{url}.pool.log") as pool,
    ):
        pool.process.wait(120)
        db = ground.connect(url)
        count, first, last = db.execute(
            "select count(*), min(started_at), max(finished_at) from jobs where state = 'completed'"
        ).get
        db.close()
    if count != jobs:
        raise RuntimeError(f"{count} of {jobs} jobs completed:\n{Path(pool.log).read_text()[-2000:]}")
    return jobs / (last - first) * 1e6


# ── pick-up ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _pickup(quick: bool) -> Iterator[Figure]:
    blocks, size = (4, 20) if quick else (12, 25)
    mine: list[float] = []
    theirs: list[float] = []
    with ground.scratch() as place:
        local, behind = ground.new_queue(place), ground.new_queue(place, "behind.db")
        with (
            Server(behind) as server,
            ground.Pool(local, count=2) as here,
            ground.Pool(server.url, count=2, log=f"{behind}.pool.log") as there,
        ):
            here.until_ready(local, 4)
            there.until_ready(behind, 4)
            for _ in range(blocks):
                mine += _round(server.url, size)
                theirs += _round(local, size)
    yield Figure(NAME, f"pick-up p50 of {len(mine)}", median(mine), median(theirs), "ms", "the same, local", ("≤", 3))
    yield Figure(NAME, "pick-up p99", percentile(mine, 0.99), percentile(theirs, 0.99), "ms", "the same, local")


def _round(url: str, size: int) -> list[float]:
    """Milliseconds from the call to the first line of the task, enqueued through the same URL."""
    ground.use(url)
    tasks.clock.enqueue(1).result(timeout=30)
    taken = []
    for _ in range(size):
        time.sleep(GAP_S)
        before = time.monotonic_ns()
        taken.append((tasks.clock.enqueue(1).result(timeout=30) - before) / 1e6)
    tasks.app.close()
    return taken


# ── five hundred idle pools ─────────────────────────────────────────────────────────────────────────────────────────


def _idle(quick: bool) -> Iterator[Figure]:
    seconds = 5.0 if quick else 20.0
    count, size = (IDLE, 60) if quick else (IDLE, 200)
    with ground.scratch() as place:
        url = ground.new_queue(place)
        with Server(url) as server, ground.Pool(server.url, count=2, log=f"{url}.pool.log") as pool:
            pool.until_ready(url, 4)
            alone = _round(server.url, size)
            with _idlers(server.url, count):
                time.sleep(2 * BEAT_S if not quick else BEAT_S)
                process = psutil.Process(server.process.pid)
                before = process.cpu_times()
                time.sleep(seconds)
                after = process.cpu_times()
                busy = (after.user + after.system - before.user - before.system) / seconds
                crowded = _round(server.url, size)
    yield Figure(
        NAME, f"{count} idle pools, CPU of the server", busy * 100, 100, "%", "one core", ("≤", 0.1),
        note=f"over {seconds:g} s",
    )  # fmt: skip
    yield Figure(
        NAME, f"pick-up p50 among {count} idle pools", median(crowded), median(alone), "ms", "one pool alone", ("≤", 2)
    )


@contextlib.contextmanager
def _idlers(url: str, count: int) -> Iterator[None]:
    """Another process in which so many pools wait, each as a real one does: a long poll, and again."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.remote", url, str(count)], stdout=subprocess.PIPE, cwd=ground.ROOT,
        env=ground.environ(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def _wait_for_ever(host: str, port: int, pool: int) -> None:
    body = msgspec.msgpack.encode(bodies.Wait(queues=("elsewhere",), timeout_s=BEAT_S))
    head = (
        f"POST /v1/pools/{pool}/wait HTTP/1.1\r\nHost: localhost\r\nContent-Type: {endpoints.MSGPACK}\r\n"
        f"Accept: {endpoints.MSGPACK}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection(host, port)
    while True:
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))


async def _be_idle(url: str, count: int) -> None:
    remote = Remote(url)
    info = PoolInfo(
        name="idle", host="elsewhere", boot="elsewhere", pid=1, ticks=1, queues=("elsewhere",), kinds=("command",),
        count=1, version="bench", lease_s=30.0,
    )  # fmt: skip
    pools = [remote.register(info).pool for _ in range(count)]
    remote.close()
    host, _, port = url.removeprefix("http://").partition(":")
    waiting = []
    for pool in pools:
        waiting.append(asyncio.ensure_future(_wait_for_ever(host, int(port), pool)))
        await asyncio.sleep(BEAT_S / count)  # not all in one moment
    print("ready", flush=True)
    await asyncio.gather(*waiting)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_be_idle(sys.argv[1], int(sys.argv[2])))
