"""Run by the peers' interpreter: PgQueuer. Prints jobs a second, or pick-up times in milliseconds."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

place, options = sys.argv[1], json.loads(sys.argv[2])
TEXT = b"a payload of about a hundred bytes, which is what a job with two ids and a path would carry"


async def consume():
    db = await asyncpg.connect(options["dsn"])
    app = PgQueuer(AsyncpgDriver(db))
    out = open(f"{place}/starts", "ab", buffering=0) if options["what"] == "pickup" else None  # noqa: SIM115

    @app.entrypoint("noop")
    async def noop(job):
        if out:
            out.write(b"%d\n" % time.monotonic_ns())

    print("ready", flush=True)
    await app.run(batch_size=options["batch"])


def consumers(count):
    return [
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:3], "consume"], stdout=subprocess.PIPE)
        for _ in range(count)
    ]


async def drain():
    db = await asyncpg.connect(options["dsn"])
    queries = Queries(AsyncpgDriver(db))
    await queries.install()
    for first in range(0, options["jobs"], 1000):
        count = min(1000, options["jobs"] - first)
        await queries.enqueue(["noop"] * count, [TEXT] * count, [0] * count)
    processes = consumers(2)
    try:
        total = options["jobs"]
        while (left := await db.fetchval("select count(*) from pgqueuer")) > total - 500:
            await asyncio.sleep(0.005)
        began, first = time.monotonic(), left
        while await db.fetchval("select exists (select from pgqueuer)"):
            await asyncio.sleep(0.01)
        print(first / (time.monotonic() - began))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
        await queries.uninstall()
        await db.close()


async def pickup():
    db = await asyncpg.connect(options["dsn"])
    queries = Queries(AsyncpgDriver(db))
    await queries.install()
    (process,) = consumers(1)
    process.stdout.readline()
    await asyncio.sleep(2)
    path, took = f"{place}/starts", []
    try:
        for n in range(options["jobs"] + 3):
            await asyncio.sleep(0.02)
            before = time.monotonic_ns()
            await queries.enqueue("noop", TEXT, 0)
            while len(lines := Path(path).read_bytes().splitlines()) <= n:
                await asyncio.sleep(0.001)
            took.append((int(lines[n]) - before) / 1e6)
        print(json.dumps(took[3:]))
    finally:
        process.terminate()
        process.wait(30)
        await queries.uninstall()
        await db.close()


asyncio.run(
    {"consume": consume, "drain": drain, "pickup": pickup}[
        sys.argv[-1] if sys.argv[-1] == "consume" else options["what"]
    ]()
)
