"""From options to a running pool: who we are, what was left behind, which workers, how it ends."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from .. import __version__
from ..core.label import suffix
from ..core.model import Kind, PoolEvent, PoolInfo, Registered, Turn
from ..core.ports import Source
from ..env import boot, failpoint, hostname, start_ticks
from ..errors import CoveyError, InvalidInput
from ..log import Log, LogFile
from ..worker import cgroup, family, wire
from ..worker.main import Setting
from . import live
from .care import Parent
from .forking import Nursery
from .neighbours import Neighbours
from .sizing import automatic
from .tails import Tails
from .types import Type, Types, plain, typed

if TYPE_CHECKING:
    from .exchange import Exchange

PRELOAD_S = 60.0
OLD_LOG_S = 30 * 86400.0
SECRET = ("COVEY_TOKEN", "COVEY_TOKEN_FILE")  # ours to come in with, no business of the jobs

Workers = dict[Type, dict[Kind, int]]


class PoolOptions(Struct, frozen=True, kw_only=True):
    url: str
    count: int = 0  # 0 = by CPU and memory
    queues: tuple[str, ...] | None = None  # None = every queue
    workers: dict[str, int] = {}  # worker types: queue → count, instead of the two above
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
        return plain(self.count or automatic(), self.queues)


def run(source: Source, options: PoolOptions) -> int:
    """Runs a pool until it is told to stop, and leaves nothing behind. Its exit code."""
    parent = None if options.parent_pid is None else Parent(options.parent_pid)
    name = options.name or f"pool-{os.getpid()}"
    log = Log(name, quiet=options.quiet, file=log_file(options.logs, name))
    files = _raise_file_limit()
    sys.setswitchinterval(0.001)  # two threads hand work to each other all the time
    with signal_pipe() as signals:
        family.become_subreaper()
        failpoint("pool.before_register")
        starter = Starter(source, options, log, files, parent)
        starter.clean_up()
        if _signalled(signals):
            return 0
        starter.register()
        left = False
        try:
            code = starter.work(signals)
        finally:
            # Whatever went wrong: what we hand back now may be started elsewhere at once.
            starter.end_processes()
            left = starter.leave()
            starter.close()
        return code if left else 1


class Starter:
    """The pool before it runs."""

    def __init__(self, source: Source, options: PoolOptions, log: Log, files: int, parent: Parent | None) -> None:
        self._files, self._parent = files, parent
        self._source, self._options, self._types, self._log = source, options, options.types(), log
        self._registered: Registered | None = None
        self._name = options.name or f"{hostname()}-{os.getpid()}"
        self._label = suffix(self._name, hostname())
        self._preload = True
        self._live = ""
        self._tails: Tails | None = None
        self._own_live = ""  # a directory for live output that we made, because the queue has none for us
        self._exchange: Exchange | None = None
        self._ticks = start_ticks(os.getpid()) or 0
        self._cgroup: str | None = None
        self._lifeline = os.pipe2(os.O_CLOEXEC)  # nobody writes: its end tells every worker that ours has come

    @property
    def pool(self) -> int:
        assert self._registered is not None
        return self._registered.pool

    def clean_up(self) -> None:
        """What dead pools of this host left behind is gone before we claim anything."""
        live.sweep()
        Neighbours(self._source, self._source.database_id, self._log).look(me=None, force=True)

    def register(self) -> None:
        options = self._options
        self._cgroup = self._cgroup or cgroup.create(cgroup.name(self._source.database_id, os.getpid(), self._ticks))
        info = PoolInfo(
            name=self._name,
            host=hostname(),
            boot=boot(),
            pid=os.getpid(),
            ticks=self._ticks,
            queues=self._types.queues,
            kinds=("command", "sync", "async") if options.app else ("command",),
            count=self._types.count,
            types=options.workers or None,
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
            found = self._first_nursery(signals)
        except OSError as error:
            return self._without_anybody(f"cannot start {sys.executable}: {error.strerror or error}")
        if found is None:
            return 0
        nursery, workers = found
        from .crew import Crew
        from .exchange import Exchange
        from .pool import Pool

        neighbours = Neighbours(self._source, registered.database_id, self._log)
        self._exchange = Exchange(
            self._source,
            neighbours,
            self._log,
            pool=registered.pool,
            database_id=registered.database_id,
            types=self._types,
            beat_s=min(config["heartbeat_seconds"], config["lock_lease_seconds"] / 3),
            lease_s=config["lock_lease_seconds"],
        )
        crew = Crew(
            self._log,
            self._exchange.note,
            limit=options.max_startup or config["max_startup_concurrency"],
            concurrency=config["max_concurrency"],
            max_jobs=options.max_jobs,
            label=self._label,
        )
        pool = Pool(
            self._exchange,
            crew,
            self._birth,
            self._log,
            types=self._types,
            live=self._live,
            grace_s=options.grace_s,
            rejoin=self._rejoin,
            parent=self._parent,
            max_memory=options.max_memory,
        )
        if self._own_live and self._source.is_served:
            self._tails = Tails(self._source, self._own_live, lambda: self.pool)
        self._log.started(registered.pool, os.getpid(), options.url)
        if options.drain:
            self._exchange.drain()
        return pool.run(signals, nursery, workers)

    def _first_nursery(self, signals: int) -> tuple[Nursery, Workers] | None:
        """A zygote with the app in it, and the workers that this takes; None if we were told to stop meanwhile."""
        for last in (False, False, True):
            nursery = self._birth()
            importlib.import_module(".pool", __package__)  # while the zygote does its own imports
            told = _hear(nursery, signals)
            if last or not nursery.killed():
                break
            nursery.close()
        if told is None:
            nursery.kill()  # it may be deep in an import and would not hear us hang up
            nursery.close()
            return None
        if told.absent:
            nursery.close()
            raise InvalidInput(f"cannot import the app {self._options.app!r}: {told.error}")
        if told.error or told.note:  # a fork would lose those threads
            failed = f"importing {self._options.app} failed ({told.error})"
            self._log.app_not_shared(told.note or failed)
            nursery.close()
            self._preload = False
            nursery = self._birth()
        return nursery, {type: self._kinds(type, told) for type in self._types}

    def _kinds(self, type: Type, told: wire.Preloaded) -> dict[Kind, int]:
        """How many of each kind a type takes."""
        kinds: dict[Kind, int] = {"command": type.count}
        if self._options.app:
            # A task may be queued by name as the wrong kind, or have changed since: each kind has somebody to say so.
            found = {"sync", "async"} if told.error else set(told.tasks.values())
            kinds["sync"] = type.count if "sync" in found else 1
            kinds["async"] = type.count if "async" in found else 1
        return kinds

    def _without_anybody(self, why: str) -> int:
        """Not even a zygote can be started: said of every worker that should have been."""
        names = [f"{type.name or 'command'}-{number + 1}" for type in self._types for number in range(type.count)]
        self._log.all_started(0, len(names), 0.0, [f"{name} ({why})" for name in names])
        now = time.time_ns() // 1000
        events = [PoolEvent(now, "failed", name, f"{why}; log: {self._log.path}") for name in names]
        self._source.turn(Turn(pool=self.pool, database_id=self._source.database_id, number=1, events=events))
        return 1

    def _birth(self) -> Nursery:
        registered = self._registered
        assert registered is not None
        mark = f"{registered.database_id}:{registered.pool}"
        return Nursery(
            Setting(
                self._options.app,
                self._live,
                mark,
                self._lifeline[0],
                self._files,
                self._cgroup,
                registered.config,
                self._label,
            ),
            preload=self._preload,
            environ={name: value for name, value in os.environ.items() if name not in SECRET}
            | {"COVEY_DB": self._options.url},
            says=self._log.file.fd if self._log.file else None,
        )

    def end_processes(self) -> None:
        """Nothing that was started here lives."""
        family.kill_marked(f"{self._source.database_id}:{self.pool}:")
        if self._cgroup:
            cgroup.end(self._cgroup)

    def leave(self) -> bool:
        """The pool is forgotten; if the queue is out of reach, the others find out by themselves that it is gone."""
        try:
            self._source.leave(self.pool)
        except (CoveyError, OSError) as error:
            self._log.not_left(error)
            return False
        return True

    def close(self) -> None:
        if self._tails:
            self._tails.close()
        live.remove(self._own_live)
        for end in self._lifeline:
            os.close(end)
        if self._log.file:
            self._log.file.close()

    def _rejoin(self) -> None:
        self.register()
        if self._exchange:
            self._exchange.rejoin(self.pool)


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


def _raise_file_limit() -> int:
    """A pool has five descriptors per worker: the soft limit is as high as allowed. What it was, for the jobs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def _hear(nursery: Nursery, signals: int) -> wire.Preloaded | None:
    """What the zygote has to say after its preload; None if a signal came first."""
    deadline = time.monotonic() + PRELOAD_S
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([nursery.control.fileno(), signals], [], [], left)
        if signals in ready:
            return None
        if ready:
            told = nursery.hear()
            if isinstance(told, wire.Preloaded):
                return told
            return wire.Preloaded({}, error="the import ended the process")
    return wire.Preloaded({}, error=f"the import took longer than {PRELOAD_S:g} s")


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
