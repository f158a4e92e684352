"""The tasks of the storms: each leaves one line, so that a second run is seen."""

from __future__ import annotations

import os
import time

from covey import Covey
from covey.worker.context import Context

app = Covey()


@app.task
def trace(number: int, seconds: float = 0.0) -> int:
    time.sleep(seconds)
    _leave(number)
    return number


@app.task
def branch(ctx: Context, number: int, leaves: int) -> None:
    _leave(number)
    for leaf in range(1, leaves + 1):
        ctx.spawn(trace, number + leaf)


@app.task
def rest(seconds: float) -> None:
    time.sleep(seconds)


def _leave(number: int) -> None:
    fd = os.open("traces", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{number}\n".encode())
    os.close(fd)
