"""Run by the peers' interpreter: how fast huey's SqliteHuey drains no-op tasks. Prints jobs a second."""

import json
import os
import signal
import subprocess
import sys
import time

place, options = sys.argv[1], json.loads(sys.argv[2])


def make():
    from huey import SqliteHuey

    huey = SqliteHuey(
        "bench", filename=os.path.join(place, "huey.db"), results=False, fsync=options["fsync"], cache_mb=64
    )

    @huey.task()
    def noop(n, text):
        pass

    return huey, noop


def consume():
    import logging

    logging.disable(logging.CRITICAL)
    huey, _ = make()
    huey.create_consumer(
        workers=options["workers"], worker_type=options["kind"], periodic=False, initial_delay=0.001, max_delay=0.001,
        check_worker_health=False,
    ).run()  # fmt: skip


def next_id(huey):
    """The first waiting task; a count would read them all and slow the consumer down."""
    (found,) = huey.storage.sql("select min(id) from task", results=True)
    return found[0]


def measure():
    huey, noop = make()
    jobs = options["jobs"]
    with huey.storage.db(commit=True) as cursor:
        text = "a payload of about a hundred bytes, which is what a job with two ids and a path would carry"
        rows = ((huey.storage.name, huey.serialize_task(noop.s(n, text)), 0) for n in range(jobs))
        cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)
    consumer = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "consume"])
    try:
        while next_id(huey) == 1:
            time.sleep(0.002)
        began, first = time.monotonic(), next_id(huey)
        while next_id(huey) is not None:
            time.sleep(0.005)
        print((jobs - first + 1) / (time.monotonic() - began))
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.wait(20)


if sys.argv[-1] == "consume":
    consume()
else:
    measure()
