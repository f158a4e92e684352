"""covey run: queue a command, work it if nobody else does, follow it, end as it ends, and end it if we end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ...errors import CoveyError, InvalidInput, NotFound, Refused, StoreError
from ..codes import TIMED_OUT, code_of
from ..open_queue import database, open_queue, refuse_nameless_inside_job
from ..options import Attempts, Cwd, Db, Env, Key, Label, Priority, Queue, Words
from ..printing import one_line
from ..words import WordsCommand, argv_of

if TYPE_CHECKING:
    from ...core.ports import Client
    from ...core.view import JobView
    from ...engine.engine import Engine
    from ..run_caller import Requests
    from ..run_pool import Workers

NoReuse = Annotated[
    bool, typer.Option("--no-reuse", help="Do not use workers elsewhere, even if a server of this queue runs.")
]
Limit = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Cancel it after 90s, 5m …; exit code 124.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Let the job go on if this command ends before it.")]

HURRY_S = 3.0  # once we are ending: how long a reader may take over what the job has written
OUTER = "COVEY_OUTER"  # the jobs that wait for a job by a `run`, as <database_id>:<job> …
LOOK_S = 0.5  # how often we look whether somebody works on the queue


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
    from ...core.times import seconds
    from ..job_input import from_words, job_options, refuse_mixture

    refuse_nameless_inside_job(db)
    limit_s = None if timeout is None else seconds(timeout, "--timeout")
    options = job_options(queue=queue, priority=priority, max_attempts=max_attempts, cwd=cwd, env=env, label=label)
    if chain := _outer_jobs():
        options["env"] = {**options.get("env", {}), OUTER: " ".join(f"{database}:{job}" for database, job in chain)}
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
    outer = [job for job in chain if job[0] == cast("Engine", engine).database_id]
    if outer:
        _refuse_own_place(engine, [job for _, job in outer], specs[0].queue)
    from ..run_caller import Presence, Requests, ourselves
    from ..run_pool import Workers, reuses

    reuse = reuses(engine, no_reuse)

    lease_s: float = settings["lock_lease_seconds"]
    (job,) = engine.enqueue(specs, caller=None if keep else ourselves(lease_s))
    requests = Requests(limit_s)
    inside = bool(outer)
    workers = Workers(engine, url, job.id, specs[0].queue, requests, reuse=reuse, keep=keep, inside=inside)
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
        from ..follow import Follower
        from ..slow_reader import Outlet

        self._engine, self._job, self._workers, self._requests, self._keep = engine, job, workers, requests, keep
        self._outs = Outlet(sys.stdout, requests.are_due), Outlet(sys.stderr, requests.are_due)
        self._follower = Follower(engine, job, seen=set(), outs=self._outs)
        self._look_at = time.monotonic() + LOOK_S

    def work(self) -> int:
        """The job has ended, its output is out, the temporary pool is gone; the exit code."""
        from ..run_caller import Asked, OutOfTime, Unread

        try:
            self._workers.look("pending")
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
        from ..run_caller import Unread

        self._requests.heed()
        if any(out.is_unread for out in self._outs):
            raise Unread
        now = time.monotonic()
        if now > self._look_at:
            self._look_at = now + LOOK_S
            self._workers.look(view.state)

    def _end_early(self, reason: Exception) -> int:
        """Whatever ends us ends the job, unless it shall go on. Nobody can hold that up any more."""
        from ..run_caller import Asked, OutOfTime

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
        from ...engine.views import is_alive

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


def _outer_jobs() -> list[tuple[str, int]]:
    """The jobs that wait for this command, as (database id, job): the one that it is part of comes last, before it
    those that have come to wait for that one by a `run` of their own."""
    database, _, job, *_ = [*os.environ.get("COVEY_RUN", "").split(":"), "", "", ""]
    links = [link.partition(":")[::2] for link in os.environ.get(OUTER, "").split()]
    return [(database, int(job)) for database, job in [*links, (database, job)] if job.isdecimal() and int(job)]


def _refuse_own_place(engine: Client, outer: list[int], queue: str) -> None:
    """Refused if a job that waits for us holds what ours would wait for."""
    rules = next((each for each in engine.queues() if each.name == queue), None)
    if rules is None or not (rules.serial or rules.concurrency is not None):
        return
    limit = "one tree at a time" if rules.serial else f"at most {rules.concurrency} at a time"
    for id in reversed(outer):
        with contextlib.suppress(NotFound):
            job = engine.job(id)
            if job.queue == queue and job.state == "processing":
                raise Refused(
                    f"the queue {queue!r} runs {limit}, and job {id}, which this is part of, would wait for itself; "
                    "use `covey spawn`, or another --queue"
                )
