"""Run by the peers' interpreter: how fast honker drains with batches. Prints jobs a second. No pool: its plain loop."""

import json
import os
import sys
import time

import honker

place, options = sys.argv[1], json.loads(sys.argv[2])
text = "a payload of about a hundred bytes, which is what a job with two ids and a path would carry"


def noop(n, text):
    pass


db = honker.open(os.path.join(place, "honker.db"))
queue = db.queue("bench")
with db.transaction() as tx:
    for n in range(options["jobs"]):
        queue.enqueue({"n": n, "text": text}, tx=tx)
done = 0
began = time.monotonic()
while jobs := queue.claim_batch("w", options["batch"]):
    for job in jobs:
        noop(**job.payload)
    queue.ack_batch([job.id for job in jobs], "w")
    done += len(jobs)
assert done == options["jobs"]
print(done / (time.monotonic() - began))
