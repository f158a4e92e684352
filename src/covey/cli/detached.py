"""A pool or server that outlives the terminal: started in a session of its own, left once it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from ..errors import CoveyError, StoreError
from .open_queue import open_queue
from .printing import answer, note, safe

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..core.view import PoolView

FLAGS = ("--detach", "--daemon", "-d")
PATIENCE_S = 60.0
LOOK_S = 0.05


def start_detached(url: str) -> int:
    """The same command without --detach runs on its own, its workers are ready; its exit code if it ended before."""
    queue = open_queue(url, create=True)
    with _log(queue) as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "covey", *(word for word in sys.argv[1:] if word not in FLAGS)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return _see_it_ready(queue, child, log.name)
        except BaseException:
            child.terminate()
            raise


def _log(queue: Client) -> tempfile._TemporaryFileWrapper[bytes]:
    """What it says beside its own log: errors of an app that cannot be imported, for example."""
    directory = os.path.join(queue.place.side, "logs") if queue.place.side else None
    if directory is not None:
        os.makedirs(directory, exist_ok=True)
    return tempfile.NamedTemporaryFile(prefix="detached-", suffix=".log", dir=directory, delete=False)


def _see_it_ready(queue: Client, child: subprocess.Popen[bytes], log: str) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (code := child.poll()) is not None:
            with open(log, errors="replace") as file:
                lines = file.read().splitlines()
            os.unlink(log)
            for line in lines[-5:]:
                note(safe(line))
            return code
        if (pool := _pool_of(queue, child.pid)) is not None and _is_ready(pool):
            _say(pool, log)
            return 0
        time.sleep(LOOK_S)
    raise StoreError(f"no worker was ready after {PATIENCE_S:.0f} s, and it was stopped; {log} says more")


def _pool_of(queue: Client, pid: int) -> PoolView | None:
    from .. import env

    try:
        found = queue.pool_views()
    except CoveyError:
        return None  # it is perhaps the one that starts its server
    return next((pool for pool in found if pool.pid == pid and pool.boot == env.boot()), None)


def _is_ready(pool: PoolView) -> bool:
    """Whether everybody who could start has: what was given up is said by `worker list`."""
    if any(worker.state == "starting" for worker in pool.workers):
        return False
    return bool(pool.workers or pool.given_up or not pool.count)


def _say(pool: PoolView, log: str) -> None:
    workers = sum(worker.state != "dead" for worker in pool.workers)
    answer(f"pool {pool.id} (pid {pool.pid}): {workers} {'worker' if workers == 1 else 'workers'} ready")
    note(f"log: {pool.log or log}; `covey worker list` shows it, `covey worker stop {pool.id}` ends it")
