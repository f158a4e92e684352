"""covey run: queue a command, work it if nobody else does, follow it, end as it ends, and end it if we end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..core.model import ENDED
from ..errors import CoveyError, InvalidInput, StoreError
from .codes import TIMED_OUT, code_of
from .opening import database, open_queue, refuse_nameless_inside_job
from .options import Attempts, Cwd, Db, Env, Key, Label, Priority, Queue, Words
from .output import one_line
from .words import WordsCommand, argv_of

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..core.view import JobView
    from ..engine.engine import Engine
    from .calling import Requests

NoReuse = Annotated[
    bool, typer.Option("--no-reuse", help="Do not use workers elsewhere, even if a server of this queue runs.")
]
Limit = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Cancel it after 90s, 5m …; exit code 124.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Let the job go on if this command ends before it.")]

HURRY_S = 3.0  # once we are ending: how long a reader may take over what the job has written
GRACE_S = 2  # how long our pool lets others' jobs run on once it must go


def run(
    ctx: typer.Context,
    words: Words = None,
    queue: Queue = "default",
    priority: Priority = 0,
    key: Key = None,
    max_attempts: Attempts = None,
    timeout: Limit = None,
    cwd: Cwd = None,
    env: Env = None,
    label: Label = None,
    keep: Keep = False,
    no_reuse: NoReuse = False,
    db: Db = None,
) -> int:
    """Queue a command, follow what it writes, exit with its code. The job ends with this command, whatever ends it.

    If no pool on this host serves the queue, a temporary one is started for the time being.
    """
    from ..core.times import seconds
    from .submit import from_words, job_options, refuse_mixture

    refuse_nameless_inside_job(db)
    limit_s = None if timeout is None else seconds(timeout, "--timeout")
    options = job_options(queue=queue, priority=priority, max_attempts=max_attempts, cwd=cwd, env=env, label=label)
    argv = argv_of(ctx)
    refuse_mixture(list(words or ()), argv, None, key)
    url = database(db)
    engine = open_queue(url, create=True)
    settings = engine.settings()
    specs = from_words(list(words or ()), argv, settings, {**options, "key": key})
    if len(specs) != 1 or specs[0].kind != "command":
        raise InvalidInput("run takes one command; queue several jobs, or tasks, with `covey enqueue` and `covey wait`")
    if specs[0].run_at is not None or specs[0].delay_s is not None:
        raise InvalidInput("run works the command now; for run_at and delay there are `covey enqueue` and `covey wait`")
    reuse = _reuses(engine, no_reuse)
    from .calling import Presence, Requests, ourselves

    lease_s: float = settings["lock_lease_seconds"]
    (job,) = engine.enqueue(specs, caller=None if keep else ourselves(lease_s))
    requests = Requests(limit_s)
    workers = Workers(engine, url, job.id, specs[0].queue, requests, reuse=reuse, keep=keep)
    running = Running(engine, job.id, workers, requests, keep=keep)
    presence = None if keep else Presence(engine, job.id, min(settings["heartbeat_seconds"], lease_s / 3))
    try:
        return running.work()
    finally:
        if presence:
            presence.close()


run.command_class = WordsCommand  # type: ignore[attr-defined]


class Running:
    """One job, from its first line to its exit code."""

    def __init__(self, engine: Client, job: int, workers: Workers, requests: Requests, *, keep: bool) -> None:
        from .follow import Follower
        from .outlet import Outlet

        self._engine, self._job, self._workers, self._requests, self._keep = engine, job, workers, requests, keep
        self._outs = Outlet(sys.stdout, requests.are_due), Outlet(sys.stderr, requests.are_due)
        self._follower = Follower(engine, job, seen=set(), outs=self._outs)
        self._look_at = 0.0

    def work(self) -> int:
        """The job has ended, its output is out, the temporary pool is gone; the exit code."""
        from .calling import Asked, OutOfTime, Unread

        try:
            self._workers.look()
            view = self._follower.follow(self._tick)
            if any(out.is_unread for out in self._outs):
                raise Unread
        except (OutOfTime, Asked, Unread) as reason:
            return self._end_early(reason)
        except BaseException:
            if not self._keep:
                with contextlib.suppress(CoveyError, OSError):  # else it stays tied to us, and we are gone
                    self._engine.cancel([self._job])
                    self._let_go()
            self._workers.leave(hurry=not self._keep)
            raise
        finally:
            self._follower.close()
        self._let_go()
        self._workers.leave()
        if view is not None and view.state != "completed":
            self._say(f"job {self._job} is {view.state}" + (f": {one_line(view.error)}" if view.error else ""))
        return code_of(view)

    def _tick(self, view: JobView) -> None:
        from .calling import Unread

        self._requests.heed()
        if any(out.is_unread for out in self._outs):
            raise Unread
        now = time.monotonic()
        if now > self._look_at:
            self._look_at = now + 0.5
            self._workers.look()

    def _end_early(self, reason: Exception) -> int:
        """Whatever ends us ends the job, unless it shall go on. Nobody can hold that up any more."""
        from .calling import Asked, OutOfTime

        self._requests.settle()
        is_late = isinstance(reason, OutOfTime)
        if not self._keep:
            with contextlib.suppress(CoveyError):
                self._engine.cancel([self._job])
        for out in self._outs:  # after that: a reader who does not read keeps nobody alive
            out.hurry(HURRY_S)
        if self._keep:
            self._say(f"job {self._job} goes on; `covey logs -f {self._job}` shows it")
        else:
            if isinstance(reason, Asked):
                self._say(f"cancelling job {self._job}")
            try:
                self._see_it_end()
                self._let_go()
            finally:
                self._workers.leave(hurry=True)
            if is_late:
                self._say(f"time is over, job {self._job} was cancelled")
        return TIMED_OUT if is_late else 128 + (reason.number if isinstance(reason, Asked) else signal.SIGPIPE)

    def _see_it_end(self) -> None:
        """The processes of the cancelled job are gone, and what they wrote is out."""
        from ..engine.views import is_alive

        def tick(view: JobView) -> None:
            pools = self._engine.pool_views() if view.pool is not None else []
            if view.pool is not None and not any(pool.id == view.pool and is_alive(pool) for pool in pools):
                raise StoreError(
                    f"job {self._job} is cancelled; its pool is gone, and the next one ends what is left of it"
                )

        self._follower.follow(tick)

    def _let_go(self) -> None:
        """It has ended: nobody needs to watch us any longer. If that cannot be said now, the next who looks sees it."""
        if not self._keep:
            with contextlib.suppress(CoveyError, OSError):
                self._engine.let_go(self._job)

    def _say(self, text: str) -> None:
        self._outs[1].write(f"covey: {text}\n")


class Workers:
    """Who works on the queue: pools that are there, or one of our own for the time being."""

    def __init__(
        self, engine: Client, url: str, job: int, queue: str, requests: Requests, *, reuse: bool, keep: bool
    ) -> None:
        self._engine, self._url, self._job, self._queue = engine, url, job, queue
        self._requests, self._reuse, self._keep = requests, reuse, keep
        self._own: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        """Somebody works on the queue: also when whoever did so at the start has left."""
        if self._own is not None and self._own.poll() is None:
            return
        if _served(self._engine, self._queue, self._reuse):
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


def _reuses(engine: Client, no_reuse: bool) -> bool:
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
