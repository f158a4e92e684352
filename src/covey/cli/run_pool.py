"""Who works on the job of a `covey run`: pools that are there, or one of its own for the time being."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, cast

from ..core.model import ENDED
from ..errors import StoreError

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..engine.engine import Engine
    from .run_caller import Requests

GRACE_S = 2  # how long our pool lets others' jobs run on once it must go


class Workers:
    """Looked after until the job has ended."""

    def __init__(
        self,
        engine: Client,
        url: str,
        job: int,
        queue: str,
        requests: Requests,
        *,
        reuse: bool,
        keep: bool,
        inside: bool,
    ) -> None:
        """``inside``: part of a job of the same queue, whose pools may be full of such jobs."""
        self._engine, self._url, self._job, self._queue = engine, url, job, queue
        self._requests, self._reuse, self._keep, self._inside = requests, reuse, keep, inside
        self._own: subprocess.Popen[bytes] | None = None
        self._waited = False  # whether it was left to others once

    def look(self, state: str) -> None:
        """Somebody works on the queue: also when whoever did so at the start has left.

        Inside a job the others' pools have a moment to take it. Then one of our own works on it and on nothing else:
        all places may be held by jobs that wait as we do, and another such job must not be taken before ours.
        """
        if self._own is not None and self._own.poll() is None:
            return
        waits = self._inside and self._waited and state == "pending"
        self._waited = True
        if not waits and _served(self._engine, self._queue, self._reuse):
            return
        if self._own is not None:
            self._refuse_stranded()
        else:
            self._own = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        """A pool that ends with us; if the job shall go on without us, once the queue is empty."""
        command = [sys.executable, "-m", "covey", "worker", "start", "--db", self._url, "--count", "1"]
        command += ["--queue", self._queue, "--drain", "--quiet", "--no-reuse", "--grace", str(GRACE_S)]
        if not self._keep:
            command += ["--parent-pid", str(os.getpid())]
        if self._inside:
            command += ["--tree", str(self._job)]
        # Its own session: Ctrl-C is for us to answer, by cancelling the job.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Whoever waits for the end of what we say must not wait for a pool that stays.
            stderr=subprocess.DEVNULL if self._keep else None,
            start_new_session=True,
        )

    def leave(self, *, hurry: bool = False) -> None:
        """Our pool is gone. In a ``hurry`` another's job that it runs is handed back instead of waited for."""
        if self._own is None:
            return
        self._tell(signal.SIGTERM if hurry else signal.SIGINT)
        while not hurry and not _has_ended(self._own):
            if self._requests.are_due():
                self._tell(signal.SIGTERM)
                break
        self._own.wait()

    def _tell(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._own is not None and self._own.poll() is None:
                self._own.send_signal(number)

    def _refuse_stranded(self) -> None:
        """StoreError if the job, as it is now that its pool has left, waits for somebody who does not come."""
        found = self._engine.why(self._job)
        if found.state not in ENDED:
            cancelled = "" if self._keep else ", and is cancelled"
            raise StoreError(
                f"the temporary pool has left and job {self._job} is still {found.state}{cancelled}: {found.reason}"
            )


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it is gone, after a moment's wait that its end cuts short."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return process.poll() is not None
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(100))
    finally:
        os.close(handle)


def reuses(engine: Client, no_reuse: bool) -> bool:
    """Whether workers elsewhere will do: those of a server, which we came through or which runs for this queue."""
    if not hasattr(engine, "store"):
        return True
    from .reusing import find_server

    return not no_reuse and find_server(cast("Engine", engine)) is not None


def _served(engine: Client, queue: str, reuse: bool) -> bool:
    """Whether a living pool of this host (``reuse``: of any) would take a command of that queue."""
    from .. import env
    from ..engine.views import is_alive

    return any(
        (reuse or pool.boot == env.boot())
        and is_alive(pool)
        and pool.state == "running"
        and "command" in pool.kinds
        and (pool.queues is None or queue in pool.queues)
        for pool in engine.pool_views()
    )
