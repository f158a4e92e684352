"""What tasks leave behind for the tests, and wait for."""

from __future__ import annotations

import os
import time


def leave_trace(text: object, name: str = "traces") -> None:
    """One line in a file of the pool's directory; a single write with O_APPEND is never torn."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


def wait_for(name: str, seconds: float = 30.0) -> None:
    """Returns when somebody has made the file."""
    deadline = time.monotonic() + seconds
    while not os.path.exists(name) and time.monotonic() < deadline:
        time.sleep(0.005)
