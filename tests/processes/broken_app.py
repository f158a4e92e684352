"""An app that can be imported until a file `broken` is there: then something it needs is gone, as after an upgrade."""

from __future__ import annotations

import os

from traces import leave_trace, wait_for

from covey import Covey

if os.path.exists("broken"):
    raise ImportError("libduck.so.3: cannot open shared object file")

app = Covey()


@app.task
def quack(name: str) -> str:
    """Runs until the file exists."""
    leave_trace(os.getpid())
    wait_for(name)
    return "quack"
