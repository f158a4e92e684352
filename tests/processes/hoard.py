"""Tasks that keep memory."""

from __future__ import annotations

import os
import sys

from traces import leave_trace, wait_for

from covey import Covey

print("the hoard is being imported", file=sys.stderr)

app = Covey()
kept: list[bytes] = []


@app.task
def keep(mega: int) -> int:
    """Memory that is never given back."""
    kept.append(b"x" * (mega << 20))
    return os.getpid()


@app.task
def keep_until(mega: int, name: str) -> int:
    """The same, by a job that goes on until the file exists."""
    pid = keep(mega)
    leave_trace(pid)
    wait_for(name)
    return pid
