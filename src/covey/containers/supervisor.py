"""The supervisor: workers in containers. Each container runs a pool of one worker, over HTTP; we start it, watch it,
replace it and remove it.

For the queue the supervisor is a pool that claims nothing: it beats, so that `worker list` shows it, `worker stop`
reaches it, and a killed one is noticed. All commands of the container engine run in threads, everything else in the
main one. The engine's events are only a hint to look; what is asked every few seconds is the truth.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .. import __version__
from ..core.ports import Source
from ..core.turn import LostPool, PoolEvent, PoolInfo, Turn
from ..env import boot, failpoint, hostname, rng, start_ticks
from ..errors import ContainerError, CoveyError
from ..log import Log
from ..pool.care import Parent
from ..pool.main import log_file, signal_pipe
from ..pool.reaper import Reaper
from .docker import Container, Docker
from .launch import DATABASE, OWNER, ContainerOptions, arguments, container_name, is_orphan, orphans, owner, rows_of
from .worker_container import WorkerContainer, WorkerContainers

LOOK_S = 5.0
ROWS_S = 0.2  # how often the pools' rows are read while somebody has to join or to be reaped
JOIN_S = 60.0  # from a container's start to its pool's registration
OVER_GRACE_S = 5.0  # a pool's own grace comes first
NOW_S = 3.0
OOM_S = 2.0  # from the news of an OOM kill to that of the container's end, if the one has caused the other
EVENTS_AGAIN_S = 5.0
PARENT_S = 5.0


def run(source: Source, docker: Docker, options: ContainerOptions) -> int:
    """Workers have run in containers until we were told to stop; no container of ours is left. The exit code."""
    parent = None if options.parent_pid is None else Parent(options.parent_pid)
    name = options.name or f"pool-{os.getpid()}"
    log = Log(name, quiet=options.quiet, file=log_file(options.logs, name))
    supervisor = Supervisor(source, docker, options, log, parent)
    try:
        with signal_pipe() as signals:
            remove_orphans(docker, source, log)
            Reaper(source, source.database_id, log).look(me=None, force=True)
            supervisor.register()
            try:
                return supervisor.work(signals)
            finally:
                supervisor.close()
    finally:
        if log.file:
            log.file.close()


def remove_orphans(docker: Docker, source: Source, log: Log) -> list[str]:
    """Containers of lost supervisors of this host are gone, and their jobs are handed back. Their names."""
    found = [container.name for container in orphans(docker, source.database_id)]
    if found:
        docker.remove(found)
        log.containers_removed(found)
        for name in found:
            reap(source, name, "its container was removed: the supervisor that had started it was lost")
    return found


def reap(source: Source, name: str, reason: str) -> bool:
    """The pool of a dead container is reaped; False if it has to be tried again, as a beat was still on its way."""
    for pool in rows_of(source.pools(), name):
        source.reap(pool.id, pool.beat, reason)
    return not rows_of(source.pools(), name)


class Supervisor:
    def __init__(
        self, source: Source, docker: Docker, options: ContainerOptions, log: Log, parent: Parent | None
    ) -> None:
        self._source, self._docker, self._options, self._log, self._parent = source, docker, options, log, parent
        self._database_id = source.database_id
        self._tag = f"{rng.getrandbits(32):08x}"
        config = source.settings()
        limit = options.max_startup or config["max_startup_concurrency"]
        self._lease_s = config["lock_lease_seconds"]
        self._beat_s = min(config["heartbeat_seconds"], self._lease_s / 3)
        self._workers = WorkerContainers(options.groups, log, self._note, self._name, limit)
        self._threads = ThreadPoolExecutor(max_workers=limit + 2, thread_name_prefix="covey-containers")
        self._calls: dict[Future[Any], Callable[[Future[Any]], None]] = {}
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._watcher: subprocess.Popen[bytes] | None = None
        self._watch_at = 0.0
        self._look_at = 0.0
        self._looking = False
        self._rows_at = 0.0
        self._removing: set[str] = set()
        self._lost: dict[str, str] = {}  # container → why; its pool is to be reaped
        self._events: list[PoolEvent] = []
        self._pool = self._number = 0
        self._beat_at = 0.0
        self._parent_at = time.monotonic() + PARENT_S
        self._signals = 0
        self._stopping = self._had_to_cut = False
        self._cut_at: float | None = None

    def _name(self, worker: str) -> str:
        return container_name(self._tag, worker)

    # ── the queue ───────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self) -> None:
        info = PoolInfo(
            name=self._options.name or f"{hostname()}-{os.getpid()}",
            host=hostname(),
            boot=boot(),
            pid=os.getpid(),
            ticks=start_ticks(os.getpid()) or 0,
            queues=(),  # its containers serve them
            kinds=(),
            count=0,
            version=__version__,
            lease_s=self._lease_s,
            app=self._options.app,
            log=self._log.path,
        )
        self._pool, self._number = self._source.register(info).pool, 0
        self._beat_at = time.monotonic() + self._beat_s

    def _note(self, kind: str, worker: str | None, text: str | None) -> None:
        self._events.append(PoolEvent(time.time_ns() // 1000, kind, worker, text))

    def _beat(self) -> None:
        """We are seen to live, what happened is told, and we hear whether we shall stop."""
        self._beat_at = time.monotonic() + self._beat_s
        self._number += 1
        events = self._events[:]
        reply = self._source.turn(
            Turn(
                pool=self._pool,
                database_id=self._database_id,
                number=self._number,
                held=[],
                events=events,
                draining=self._stopping,
            )
        )
        if reply.lost:
            self.register()
            return
        del self._events[: len(events)]
        if reply.stop and not self._stopping:
            self._stop(None)

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def work(self, signals: int) -> int:
        self._log.supervises(self._pool, os.getpid(), self._options.image, self._options.server)
        self._selector.register(signals, selectors.EVENT_READ, self._on_signal)
        self._selector.register(self._bell, selectors.EVENT_READ, self._on_bell)
        while not self._finished():
            for key, _ in self._selector.select(self._patience()):
                key.data(key.fileobj)
            self._collect()
            self._tick()
            failpoint("containers.ticked")
        return 1 if self._had_to_cut or self._workers.nobody else 0

    def _finished(self) -> bool:
        if self._workers.nobody:
            return True
        return not len(self._workers) and not self._calls

    def _patience(self) -> float:
        now = time.monotonic()
        times = [self._beat_at] if self._looking else [self._beat_at, self._look_at]
        times += [at for at in (self._cut_at, None if self._stopping else self._workers.next_at()) if at is not None]
        if self._lost or self._workers.among("joining"):
            times.append(self._rows_at)
        if self._events:
            times.append(now + ROWS_S)
        return max(0.0, min(min(times) - now, PARENT_S))

    def _tick(self) -> None:
        now = time.monotonic()
        if not self._stopping:
            self._workers.start_more(self._start)
        if now >= self._watch_at and self._watcher is None:
            self._watch()
        if now >= self._look_at and not self._looking:
            self._look(now)
        if self._cut_at and now >= self._cut_at:
            self._cut()
        if self._parent and now >= self._parent_at:
            self._parent_at = now + PARENT_S
            if self._parent.is_gone() and not self._stopping:
                self._log.parent_died()
                self._note("parent_died", None, None)
                self._stop(self._options.grace_s)
        try:
            if (self._lost or self._workers.among("joining")) and now >= self._rows_at:
                self._rows_at = now + ROWS_S
                self._read_rows(now)
            if now >= self._beat_at or self._events:
                self._beat()
        except (CoveyError, OSError) as error:
            self._log.store_failed(error)
            self._beat_at = self._rows_at = now + 1.0

    def _call(self, work: Callable[[], Any], done: Callable[[Future[Any]], None]) -> None:
        """The engine is asked in a thread; ``done`` runs in the main one."""
        future = self._threads.submit(work)
        self._calls[future] = done
        future.add_done_callback(lambda _: os.eventfd_write(self._bell, 1))

    def _collect(self) -> None:
        for future in [future for future in self._calls if future.done()]:
            self._calls.pop(future)(future)

    def _on_bell(self, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    # ── containers come ─────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, worker: WorkerContainer) -> None:
        words = arguments(
            self._options, worker.group, worker.container, self._database_id, podman=self._docker.is_podman
        )
        self._call(lambda: self._docker.run(words), lambda future: self._on_started(worker, future))

    def _on_started(self, worker: WorkerContainer, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self._gone(worker, f"its container could not start: {error}")
        elif self._stopping:
            self._gone(worker, "it was stopped while it started")
        else:
            self._workers.started(worker)

    def _read_rows(self, now: float) -> None:
        """Whose pool has registered is ready; dead containers' pools are reaped."""
        pools = self._source.pools()
        names = {pool.name for pool in pools if pool.beat}  # it beats first when its app has been imported
        for worker in self._workers.among("joining"):
            if worker.container in names:
                self._workers.joined(worker)
            elif now - worker.started_at > JOIN_S:
                self._gone(worker, f"did not join within {JOIN_S:g} s", ask=True)
        for name, reason in list(self._lost.items()):
            if self._reap(pools, name, reason):
                del self._lost[name]

    def _reap(self, pools: list[LostPool], name: str, reason: str) -> bool:
        """True once no pool has that name. A beat that was still on its way makes us come again."""
        rows = rows_of(pools, name)
        for pool in rows:
            jobs = self._source.reap(pool.id, pool.beat, reason)
            if jobs:
                self._log.reaped(pool.id, jobs, 0)
        return not rows

    # ── containers go ───────────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        self._watch_at = time.monotonic() + EVENTS_AGAIN_S
        with contextlib.suppress(OSError):
            self._watcher = self._docker.watch(f"{OWNER}={owner()}")
            assert self._watcher.stdout is not None
            os.set_blocking(self._watcher.stdout.fileno(), False)
            self._selector.register(self._watcher.stdout, selectors.EVENT_READ, self._on_hint)

    def _on_hint(self, _: object) -> None:
        self._look_at = 0.0
        watcher = self._watcher
        if watcher and watcher.stdout and not os.read(watcher.stdout.fileno(), 1 << 16):  # the engine has gone away
            self._end_watch()

    def _end_watch(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher and watcher.stdout:
            self._selector.unregister(watcher.stdout)
            watcher.stdout.close()
            watcher.kill()
            watcher.wait()

    def _look(self, now: float) -> None:
        self._look_at, self._looking = now + LOOK_S, True
        label = f"{DATABASE}={self._database_id}"
        self._call(lambda: self._docker.containers(label), lambda future: self._on_seen(now, future))

    def _on_seen(self, looked_at: float, future: Future[Any]) -> None:
        self._looking = False
        if (error := future.exception()) is not None:
            self._log.engine_failed(error)
            return
        seen = {each.name: each for each in future.result()}
        for worker in self._workers.among("joining", "ready"):
            container = seen.get(worker.container)
            if container is None and worker.started_at < looked_at:
                self._gone(worker, "its container was removed")
            elif container is not None and container.ended:
                # The engine never forgets an OOM kill inside; one of long ago did not end the container.
                had_oom = worker.oom_at is not None and looked_at - worker.oom_at > OOM_S
                self._gone(worker, container.exit_reason(had_oom=had_oom), container)
            elif container is not None and container.oom_killed and worker.oom_at is None:
                worker.oom_at = looked_at
        known = self._workers.by_container()
        strangers = [each.name for each in seen.values() if self._is_stray(each, known)]
        if strangers:
            self._remove(strangers, "its container was removed: the supervisor that had started it was lost")

    def _is_stray(self, container: Container, known: dict[str, WorkerContainer]) -> bool:
        """Of a lost supervisor, or of ours and out of its place: a start that we had given up may come late."""
        if container.name in self._removing:
            return False
        if container.labels.get(OWNER) == owner():
            return container.name not in known
        return is_orphan(container)

    def _gone(
        self, worker: WorkerContainer, how: str, container: Container | None = None, *, ask: bool = False
    ) -> None:
        """Its container is removed, its pool reaped with the reason; another one comes unless it ended as it should."""
        name, joined = worker.container, worker.joined
        ended_well = container is not None and container.exit_code == 0 and self._options.drain
        if self._stopping or ended_well:
            self._workers.left(worker, how)
            self._remove([name], how)
            return

        def remove() -> str:
            words = "" if joined or (container is None and not ask) else self._docker.last_words(name)
            self._docker.remove([name])
            return f"{how}: {words}" if words else how

        def removed(future: Future[Any]) -> None:
            self._removing.discard(name)
            if (error := future.exception()) is not None:
                self._log.engine_failed(error)  # the next look tries again
            told = how if future.exception() else future.result()
            self._lost[name] = told
            if self._stopping:
                self._workers.left(worker, told)
            else:
                self._workers.lost(worker, told)

        worker.state = "leaving"
        self._removing.add(name)
        self._call(remove, removed)

    def _remove(self, names: list[str], reason: str) -> None:
        def removed(future: Future[Any]) -> None:
            self._removing.difference_update(names)
            if (error := future.exception()) is not None:
                self._log.engine_failed(error)  # the next look tries again
            else:
                self._lost.update(dict.fromkeys(names, reason))

        self._removing.update(names)
        self._call(lambda: self._docker.remove(names), removed)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_signal(self, fd: Any) -> None:
        """INT: what runs may finish. TERM, HUP: within the grace. A second one: now."""
        for number in os.read(fd, 512):
            if number not in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                continue
            self._signals += 1
            if self._signals > 1:
                self._stop(0.0, again=True)
            else:
                self._stop(None if number == signal.SIGINT else self._options.grace_s, again=self._stopping)

    def _stop(self, grace_s: float | None, *, again: bool = False) -> None:
        """Nobody comes any more; the pools in the containers are told the same as we were."""
        if self._stopping and not again:
            return
        self._stopping = True
        self._workers.close()
        number = signal.SIGINT if grace_s is None else signal.SIGTERM
        if grace_s is not None:
            self._cut_at = time.monotonic() + (grace_s + OVER_GRACE_S if grace_s else NOW_S)
        running = self._workers.among("joining", "ready")
        self._log.draining_containers(len(running))
        for worker in running:
            self._note("stopping", worker.name, None)
        names = [worker.container for worker in running]
        self._call(lambda: self._docker.send(names, number), lambda _: None)
        self._look_at = 0.0

    def _cut(self) -> None:
        self._cut_at = None
        running = self._workers.among("starting", "joining", "ready")
        if running:
            self._had_to_cut = True
            self._log.containers_cut([worker.name for worker in running])
            for worker in running:
                self._gone(worker, "its container was removed when its supervisor was stopped")

    def close(self) -> None:
        """Whatever went wrong: no container of ours is left, nor of lost supervisors; the queue knows us no more."""
        self._end_watch()
        self._threads.shutdown(wait=True, cancel_futures=True)  # what was being started is there by now
        label = f"{DATABASE}={self._database_id}"
        advice = f"{self._docker.program} rm -f $({self._docker.program} ps -aq -f label={label})"
        try:
            found = self._docker.containers(label)
            left = [each.name for each in found if each.labels.get(OWNER) == owner() or is_orphan(each)]
            self._docker.remove(left)
            self._lost.update(dict.fromkeys(left, "its container was removed when its supervisor was stopped"))
        except ContainerError as error:
            self._log.containers_left(error, advice)
        with contextlib.suppress(CoveyError, OSError):  # the lease does it otherwise
            for name, reason in self._lost.items():
                reap(self._source, name, reason)
            if self._events:
                self._beat()
        with contextlib.suppress(CoveyError, OSError):
            self._source.leave(self._pool)
        self._selector.close()
        os.close(self._bell)
        self._log.all_stopped()
