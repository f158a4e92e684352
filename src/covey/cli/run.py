"""covey run: queue a command, work it if nobody else does, follow it, end as it ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..core.model import ENDED
from ..errors import CoveyError, InvalidInput, StoreError
from .codes import TIMED_OUT, code_of
from .opening import database, open_queue, refuse_nameless_inside_job
from .options import Attempts, Cwd, Db, Env, Key, Label, Priority, Queue, Words
from .output import note, one_line
from .words import WordsCommand, argv_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from types import FrameType

    from ..core.ports import Client
    from ..core.view import JobView
    from ..engine.engine import Engine

NoReuse = Annotated[
    bool, typer.Option("--no-reuse", help="Do not use workers elsewhere, even if a server of this queue runs.")
]
Limit = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Cancel it after 90s, 5m …; exit code 124.")
]


class Terminated(KeyboardInterrupt):
    """SIGTERM: the same as Ctrl-C, with its own exit code."""


class OutOfTime(Exception):
    """--timeout is over."""


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
    no_reuse: NoReuse = False,
    db: Db = None,
) -> int:
    """Queue a command, follow what it writes, exit with its code. Ctrl-C cancels it.

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
    specs = from_words(list(words or ()), argv, engine.settings(), {**options, "key": key})
    if len(specs) != 1 or specs[0].kind != "command":
        raise InvalidInput("run takes one command; queue several jobs, or tasks, with `covey enqueue` and `covey wait`")
    if specs[0].run_at is not None or specs[0].delay_s is not None:
        raise InvalidInput("run works the command now; for run_at and delay there are `covey enqueue` and `covey wait`")
    reuse = _reuses(engine, no_reuse)
    (job,) = engine.enqueue(specs)
    return _work(engine, url, job.id, specs[0].queue, limit_s, reuse)


run.command_class = WordsCommand  # type: ignore[attr-defined]


def _work(engine: Client, url: str, job: int, queue: str, limit_s: float | None, reuse: bool) -> int:
    """The job has ended, its output is out, the temporary pool is gone; the exit code."""
    import signal

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    pools = [] if _served(engine, queue, reuse) else [_start_pool(url, queue)]
    seen: set[int] = set()

    def keep_served() -> None:
        """Somebody works on the queue: also when whoever did so at the start has left."""
        if any(pool.poll() is None for pool in pools) or _served(engine, queue, reuse):
            return
        if pools:
            _refuse_stranded(engine, job)
        else:
            pools.append(_start_pool(url, queue))

    try:
        try:
            view = _follow(engine, job, seen, keep_served, limit_s)
        except OutOfTime:
            _cancel(engine, job, seen)
            note(f"covey: time is over, job {job} was cancelled")
            return TIMED_OUT
        except KeyboardInterrupt as request:
            note(f"covey: cancelling job {job}")
            _cancel(engine, job, seen)
            return 143 if isinstance(request, Terminated) else 130
    finally:
        for pool in pools:
            _stop_pool(pool)
    if view is not None and view.state != "completed":
        note(f"covey: job {job} is {view.state}" + (f": {one_line(view.error)}" if view.error else ""))
    return code_of(view)


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


def _start_pool(url: str, queue: str) -> subprocess.Popen[bytes]:
    """A pool for the time being; if this process is killed, it ends by itself once the queue is empty."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "covey", "worker", "start", "--db", url, "--count", "1"]
    command += ["--queue", queue, "--drain", "--quiet", "--no-reuse"]
    # Its own session: Ctrl-C is for us to answer, by cancelling the job.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)


def _stop_pool(pool: subprocess.Popen[bytes]) -> None:
    import signal

    with contextlib.suppress(ProcessLookupError):
        if pool.poll() is None:
            pool.send_signal(signal.SIGINT)
    pool.wait()


def _follow(
    engine: Client, job: int, seen: set[int], keep_served: Callable[[], None], limit_s: float | None
) -> JobView | None:
    import time

    from .follow import follow

    deadline = None if limit_s is None else time.monotonic() + limit_s
    look_at = 0.0

    def tick(view: JobView) -> None:
        nonlocal look_at
        now = time.monotonic()
        if deadline is not None and now > deadline:
            raise OutOfTime
        if now > look_at:
            look_at = now + 0.5
            keep_served()

    return follow(engine, job, seen=seen, tick=tick)


def _refuse_stranded(engine: Client, job: int) -> None:
    """StoreError if the job, as it is now that its pool has left, waits for somebody who does not come."""
    found = engine.why(job)
    if found.state not in ENDED:
        raise StoreError(f"the temporary pool has left and job {job} is still {found.state}: {found.reason}")


def _cancel(engine: Client, job: int, seen: set[int]) -> None:
    """The job is cancelled (or has just ended) and its processes are gone."""
    from ..engine.views import is_alive
    from .follow import follow

    def tick(view: JobView) -> None:
        if view.pool is not None and not any(pool.id == view.pool and is_alive(pool) for pool in engine.pool_views()):
            raise StoreError(f"job {job} is cancelled; its pool is gone, and the next one ends what is left of it")

    with contextlib.suppress(CoveyError):
        engine.cancel([job])
    follow(engine, job, seen=seen, tick=tick)
