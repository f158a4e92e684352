"""From options to a running pool: who we are, what was left behind, which workers, how it ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from .. import __version__
from ..core.label import suffix
from ..core.model import Kind
from ..core.ports import Source
from ..core.turn import PoolEvent, PoolInfo, Registered, Turn
from ..env import boot, failpoint, hostname, start_ticks
from ..errors import CoveyError, Refused
from ..log import Log, LogFile
from ..system import cgroup, process_tree
from ..system.resources import automatic, most_workers, within
from ..worker import messages
from ..worker.setting import WorkerConfig
from . import live
from .care import Parent
from .live_output import OutputSender
from .reaper import Reaper
from .scout import NoZygote, Scout, environment, first, raise_file_limit
from .worker_types import Type, Types, plain, shrunk, typed
from .zygote_process import ZygoteProcess

if TYPE_CHECKING:
    from .turn_loop import TurnLoop

OLD_LOG_S = 30 * 86400.0

WorkerCounts = dict[Type, dict[Kind, int]]


class PoolOptions(Struct, frozen=True, kw_only=True):
    url: str
    count: int = 0  # 0 = by CPU and memory
    queues: tuple[str, ...] | None = None  # None = every queue
    workers: dict[str, int] = {}  # worker types: queue → count, instead of the two above
    tree: int | None = None  # a root: only its jobs
    app: str | None = None
    drain: bool = False
    grace_s: float = 10.0
    name: str | None = None
    quiet: bool = False
    logs: str | None = None  # the directory for its log file
    parent_pid: int | None = None
    max_startup: int | None = None
    max_jobs: int | None = None
    max_memory: int | None = None

    def types(self) -> Types:
        if self.workers:
            return typed(self.workers)
        return plain(self.count or automatic(), self.queues, self.tree)


def run(source: Source, options: PoolOptions, scout: Scout | None = None) -> int:
    """Runs a pool until it is told to stop, and leaves nothing behind. Its exit code.

    ``scout``: has imported the app already.
    """
    parent = None if options.parent_pid is None else Parent(options.parent_pid)
    name = options.name or f"pool-{os.getpid()}"
    log = Log(name, quiet=options.quiet, file=log_file(options.logs, name))
    files = scout.files if scout else raise_file_limit()
    sys.setswitchinterval(0.001)  # two threads hand work to each other all the time
    with contextlib.nullcontext(scout.signals) if scout else signal_pipe() as signals:
        process_tree.become_subreaper()
        failpoint("pool.before_register")
        starter = Starter(source, options, log, files, parent, scout)
        starter.clean_up()
        if _signalled(signals):
            return 0
        left = False
        try:
            starter.register()  # if that is refused, what was made for it goes too
            code = starter.work(signals)
        finally:
            # Whatever went wrong: what we hand back now may be started elsewhere at once.
            starter.end_processes()
            left = starter.leave()
            starter.part()
            starter.close()
        return code if left else 1


class Starter:
    """The pool before it runs."""

    def __init__(
        self,
        source: Source,
        options: PoolOptions,
        log: Log,
        files: int,
        parent: Parent | None,
        scout: Scout | None = None,
    ) -> None:
        self._files, self._parent, self._scout = files, parent, scout
        self._source, self._options, self._log = source, options, log
        self._types = self._fitting(options.types())
        self._registered: Registered | None = None
        self._name = options.name or f"{hostname()}-{os.getpid()}"
        self._label = suffix(self._name, hostname())
        self._preload = True
        self._live = ""
        self._output_sender: OutputSender | None = None
        self._own_live = ""  # a directory for live output that we made, because the queue has none for us
        self._turn_loop: TurnLoop | None = None
        self._ticks = start_ticks(os.getpid()) or 0
        self._cgroup: str | None = None
        # Nobody writes: its end tells every worker that ours has come.
        self._lifeline = scout.lifeline if scout else os.pipe2(os.O_CLOEXEC)

    @property
    def pool(self) -> int:
        assert self._registered is not None
        return self._registered.pool

    def clean_up(self) -> None:
        """What dead pools of this host left behind is gone before we claim anything."""
        live.sweep()
        Reaper(self._source, self._source.database_id, self._log).look(me=None, force=True)

    def register(self) -> None:
        options = self._options
        self._cgroup = self._cgroup or cgroup.create(cgroup.name(self._source.database_id, os.getpid(), self._ticks))
        info = PoolInfo(
            name=self._name,
            host=hostname(),
            boot=boot(),
            pid=os.getpid(),
            ticks=self._ticks,
            # For one tree only: no queue is served by that, and nobody else may count on it.
            queues=() if options.tree else self._types.queues,
            kinds=("command", "sync", "async") if options.app else ("command",),
            count=self._types.count,
            types={**options.workers, **{type.name: type.count for type in self._types}} if options.workers else None,
            version=__version__,
            lease_s=self._source.settings()["lock_lease_seconds"],
            app=options.app,
            log=self._log.path,
            cgroup=self._cgroup,
        )
        self._registered = self._source.register(info)
        given = self._registered.live
        if not (given and os.access(given, os.W_OK)):
            self._own_live = self._own_live or live.create(self._ticks)
        self._live = self._own_live or given
        failpoint("pool.after_register")

    def work(self, signals: int) -> int:
        registered = self._registered
        assert registered is not None
        options, config = self._options, registered.config
        try:
            found = self._first_zygote(signals)
        except OSError as error:
            return self._without_anybody(f"cannot start {sys.executable}: {error.strerror or error}")
        except NoZygote as error:
            return self._without_anybody(str(error))
        if found is None:
            return 0
        zygote, counts = found
        from .pool import Pool
        from .turn_loop import TurnLoop
        from .workers import Workers

        reaper = Reaper(self._source, registered.database_id, self._log)
        self._turn_loop = TurnLoop(
            self._source,
            reaper,
            self._log,
            pool=registered.pool,
            database_id=registered.database_id,
            types=self._types,
            beat_s=min(config["heartbeat_seconds"], config["lock_lease_seconds"] / 3),
            lease_s=config["lock_lease_seconds"],
        )
        workers = Workers(
            self._log,
            self._turn_loop.note,
            limit=options.max_startup or config["max_startup_concurrency"],
            concurrency=config["max_concurrency"],
            max_jobs=options.max_jobs,
            label=self._label,
        )
        pool = Pool(
            self._turn_loop,
            workers,
            self._start_zygote,
            self._log,
            types=self._types,
            live=self._live,
            grace_s=options.grace_s,
            rejoin=self._rejoin,
            parent=self._parent,
            max_memory=options.max_memory,
        )
        if self._own_live and self._source.is_served:
            self._output_sender = OutputSender(self._source, self._own_live, lambda: self.pool)
        self._log.started(registered.pool, os.getpid(), options.url)
        if options.drain:
            self._turn_loop.drain()
        return pool.run(signals, zygote, counts)

    def _first_zygote(self, signals: int) -> tuple[ZygoteProcess, WorkerCounts] | None:
        """A zygote with the app in it, and the workers that this takes; None if we were told to stop meanwhile."""
        zygote = self._scout.take() if self._scout else None
        if self._scout and zygote:
            told = self._scout.told
            zygote.adopt(self._worker_config(), self._options.url, self._says())
            os.write(2 if (says := self._says()) is None else says, os.pread(self._scout.said, 1 << 20, 0))
        else:
            found = first(self._start_zygote, signals, self._options.app)
            if found is None:
                return None
            zygote, told = found
        if told.note:  # a fork would lose those threads
            self._log.app_not_shared(told.note)
            zygote.close()
            self._preload = False
            zygote = self._start_zygote()
        return zygote, {type: self._kinds(type.count, told) for type in self._types}

    def _kinds(self, count: int, told: messages.Preloaded) -> dict[Kind, int]:
        """How many of each kind a type takes."""
        kinds: dict[Kind, int] = {"command": count}
        if self._options.app:
            # A task may be queued by name as the wrong kind, or have changed since: each kind has somebody to say so.
            found = set(told.tasks.values())
            kinds["sync"] = count if "sync" in found else 1
            kinds["async"] = count if "async" in found else 1
        return kinds

    def _fitting(self, types: Types) -> Types:
        """The types, with fewer workers where the system would not give us descriptors for all; Refused for not one."""
        told = self._scout.told if self._scout else messages.Preloaded({"": "sync", " ": "async"})

        def workers(counts: dict[str, int]) -> int:
            return sum(sum(self._kinds(count, told).values()) for count in counts.values())

        asked = {type.name: type.count for type in types}
        most, limit = most_workers()
        counts = within(asked, most, workers)
        if workers(counts) > most:
            raise Refused(
                f"the limit of {limit} open files is too low for {workers(counts)} workers; raise it with `ulimit -n`"
            )
        if counts != asked:
            self._log.few_files(limit, workers(asked), workers(counts), sum(counts.values()))
        return shrunk(types, counts)

    def _without_anybody(self, why: str) -> int:
        """Not even a zygote can be started: said of every worker that should have been."""
        names = [f"{type.name or 'command'}-{number + 1}" for type in self._types for number in range(type.count)]
        self._log.all_started(0, len(names), 0.0, [f"{name} ({why})" for name in names])
        now = time.time_ns() // 1000
        events = [PoolEvent(now, "failed", name, f"{why}; log: {self._log.path}") for name in names]
        self._source.turn(Turn(pool=self.pool, database_id=self._source.database_id, number=1, events=events))
        return 1

    def _start_zygote(self) -> ZygoteProcess:
        return ZygoteProcess(
            self._worker_config(), preload=self._preload, environ=environment(self._options.url), says=self._says()
        )

    def _worker_config(self) -> WorkerConfig:
        registered = self._registered
        assert registered is not None
        mark = f"{registered.database_id}:{registered.pool}"
        return WorkerConfig(
            self._options.app,
            self._live,
            mark,
            self._lifeline[0],
            self._files,
            self._cgroup,
            registered.config,
            self._label,
        )

    def _says(self) -> int | None:
        """Where what the zygote and its workers say belongs."""
        return self._log.file.fd if self._log.file else None

    def end_processes(self) -> None:
        """Nothing that was started here lives."""
        if self._registered:
            process_tree.kill_marked(f"{self._source.database_id}:{self.pool}:")
        if self._cgroup:
            cgroup.end(self._cgroup)

    def leave(self) -> bool:
        """The pool is forgotten; if the queue is out of reach, the others find out by themselves that it is gone."""
        if self._registered is None:
            return True
        try:
            self._source.leave(self.pool)
        except (CoveyError, OSError) as error:
            self._log.not_left(error)
            return False
        return True

    def part(self) -> None:
        """What a parent who is gone had asked for is not left to be run by others, if the queue can be reached."""
        if self._parent and self._parent.is_gone():
            with contextlib.suppress(CoveyError, OSError):
                Reaper(self._source, self._source.database_id, self._log).look(me=None, force=True)

    def close(self) -> None:
        if self._output_sender:
            self._output_sender.close()
        live.remove(self._own_live)
        for end in self._lifeline:
            os.close(end)
        if self._log.file:
            self._log.file.close()

    def _rejoin(self) -> None:
        self.register()
        if self._turn_loop:
            self._turn_loop.rejoin(self.pool)


def log_file(directory: str | None, name: str) -> LogFile | None:
    """The pool's own; what nobody has written to for a month goes."""
    if directory is None:
        return None
    try:
        os.makedirs(directory, exist_ok=True)
        for entry in os.scandir(directory):
            with contextlib.suppress(OSError):  # another pool that starts now may have been faster
                if entry.stat().st_mtime < time.time() - OLD_LOG_S:
                    os.unlink(entry)
        return LogFile(os.path.join(directory, f"{name.replace('/', '-')}.log"))
    except OSError:
        return None  # a read-only place: standard error is enough to work


@contextlib.contextmanager
def signal_pipe() -> Iterator[int]:
    """INT and TERM arrive as bytes on a descriptor; no Python runs in a handler."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    previous = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(previous)
        for number, action in before.items():
            signal.signal(number, action)
        os.close(read)
        os.close(write)


def _signalled(signals: int) -> bool:
    return bool(select.select([signals], [], [], 0)[0])
