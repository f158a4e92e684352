"""The tasks that the benchmarks run. The queue is the one that COVEY_DB names."""

from __future__ import annotations

import os
import time

from covey import Context, Covey

app = Covey()

TEXT = "a payload of about a hundred bytes, which is what a job with two ids and a path would carry"


@app.task
def noop(n: int, text: str) -> None:
    pass


@app.task
def clock(n: int) -> int:
    """When it started, on the clock that all processes of a machine share."""
    return time.monotonic_ns()


@app.task
def whose(n: int) -> str:
    """The pool that ran it."""
    return os.environ["COVEY_RUN"].split(":")[1]


@app.task
def fan_out(ctx: Context, count: int, queue: str | None = None) -> None:
    """So many no-op children, in another queue if one is named."""
    child = noop if queue is None else noop.using(queue=queue)
    ctx.spawn_many(child.call(n, TEXT) for n in range(count))
