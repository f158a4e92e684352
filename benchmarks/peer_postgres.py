"""Run by the peers' interpreter: queues on PostgreSQL. Prints jobs a second, or pick-up times in milliseconds as JSON.

Two consumer processes drain, one waits for single jobs. What each peer recommends for many short async jobs is set.
"""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

place, options = sys.argv[1], json.loads(sys.argv[2])
dsn = options["dsn"]
TEXT = "a payload of about a hundred bytes, which is what a job with two ids and a path would carry"


def started():
    """The first line of the task, in a pick-up measure."""
    if options["what"] == "pickup":
        with open(f"{place}/starts", "ab", buffering=0) as out:
            out.write(b"%d\n" % time.monotonic_ns())


class PgQueuer:
    left = "select count(*) from pgqueuer"

    async def open(self):
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        self.driver = AsyncpgDriver(await asyncpg.connect(dsn))
        self.queries = Queries(self.driver)

    async def install(self):
        await self.queries.install()

    async def add(self, count):
        await self.queries.enqueue(["noop"] * count, [TEXT.encode()] * count, [0] * count)

    async def consume(self):
        from pgqueuer import PgQueuer

        app = PgQueuer(self.driver)

        @app.entrypoint("noop")
        async def noop(job):
            started()

        await app.run(batch_size=100)


class Procrastinate:
    left = "select count(*) from procrastinate_jobs where status = 'todo' or status = 'doing'"

    async def open(self):
        from procrastinate import App, PsycopgConnector

        self.app = App(connector=PsycopgConnector(conninfo=dsn))

        @self.app.task(name="noop")
        async def noop(n, text):
            started()

        self.noop = noop
        await self.app.open_async()

    async def install(self):
        await self.app.schema_manager.apply_schema_async()

    async def add(self, count):
        if count == 1:
            await self.noop.defer_async(n=1, text=TEXT)
        else:
            await self.noop.batch_defer_async(*({"n": n, "text": TEXT} for n in range(count)))

    async def consume(self):
        await self.app.run_worker_async(concurrency=100, install_signal_handlers=False)


class Chancy:
    left = "select count(*) from chancy_jobs where state in ('pending', 'running')"

    async def open(self):
        from chancy import Chancy, Queue

        self.chancy = Chancy(dsn)
        self.queue = Queue("default", concurrency=100, executor="chancy.executors.asyncex.AsyncExecutor")
        await self.chancy.__aenter__()

    async def install(self):
        await self.chancy.migrate()
        await self.chancy.declare(self.queue, upsert=True)

    async def add(self, count):
        from chancy.job import Job

        job = Job(func="peer_postgres.chancy_noop", kwargs={"n": 1, "text": TEXT}, queue="default")
        if count == 1:
            await self.chancy.push(job)
        else:
            async for _ in self.chancy.push_many([job] * count):
                pass

    async def consume(self):
        from chancy import Worker

        async with Worker(self.chancy) as worker:
            await worker.wait_for_shutdown()


async def chancy_noop(*, n, text):
    started()


PEERS = {"pgqueuer": PgQueuer, "procrastinate": Procrastinate, "chancy": Chancy}


def consumers(count):
    command = [sys.executable, __file__, *sys.argv[1:3], "consume"]
    log = open(f"{place}/consumers.log", "ab")  # noqa: SIM115
    return [subprocess.Popen(command, stdout=log, stderr=log) for _ in range(count)]


@contextlib.asynccontextmanager
async def running(count):
    processes = consumers(count)
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def left_of(peer):
    import psycopg

    if not hasattr(peer, "eye"):
        peer.eye = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    return (await (await peer.eye.execute(peer.left)).fetchone())[0]


async def drain(peer):
    """From the first hundredth that is done to the end."""
    for _ in range(0, options["jobs"], 1000):
        await peer.add(min(1000, options["jobs"]))
    async with running(2):
        while (first := await left_of(peer)) > options["jobs"] * 0.99:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        deadline = began + 100
        while await left_of(peer) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        print((first - await left_of(peer)) / (time.monotonic() - began))


async def pickup(peer):
    path, took = Path(place, "starts"), []
    path.touch()
    async with running(1):
        await asyncio.sleep(4)
        for n in range(options["jobs"] + 3):
            await asyncio.sleep(0.02)
            before = time.monotonic_ns()
            await peer.add(1)
            while len(lines := path.read_bytes().splitlines()) <= n:
                await asyncio.sleep(0.002)
            took.append((int(lines[n]) - before) / 1e6)
    print(json.dumps(took[3:]))


async def main():
    logging.disable(logging.CRITICAL)
    peer = PEERS[options["peer"]]()
    await peer.open()
    if sys.argv[-1] == "consume":
        await peer.consume()
        return
    await peer.install()
    await {"drain": drain, "pickup": pickup}[options["what"]](peer)


if __name__ == "__main__":
    asyncio.run(main())
