"""Where a pool's workers come from: a zygote, another one when it is lost, and the end of what it has borne."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from ..core.model import Claim
from ..log import Log
from ..worker import messages
from .silence import Silence
from .turn_loop import TurnLoop
from .worker_process import WorkerProcess
from .workers import Workers
from .zygote_process import ZygoteProcess

BEAR_AGAIN_S = 1.0


class Host(Protocol):
    """What the pool does for us."""

    def watch(self, file: Any, act: Callable[[Any], None]) -> None: ...

    def unwatch(self, file: Any) -> None: ...

    def on_joined(self, worker: WorkerProcess) -> None: ...

    def on_lost(self, worker: WorkerProcess, how: str) -> None: ...

    def place(self, claims: Iterable[Claim]) -> None: ...


class ZygoteClient:
    def __init__(
        self, pool: Host, workers: Workers, turn_loop: TurnLoop, log: Log, start_zygote: Callable[[], ZygoteProcess]
    ) -> None:
        self._pool, self._workers, self._turn_loop, self._log, self._start_zygote = (
            pool,
            workers,
            turn_loop,
            log,
            start_zygote,
        )
        self._process: ZygoteProcess | None = None
        self._start_at: float | None = None  # when somebody who has to wait may be started
        self._bear_at: float | None = None  # when to try again to have a zygote
        self._silence = Silence()
        self._ended = False

    @property
    def at(self) -> float | None:
        """When to look again."""
        return min((at for at in (self._start_at, self._bear_at, self._silence.at) if at), default=None)

    def look(self, now: float) -> None:
        if self._bear_at and now >= self._bear_at:
            self.bear()
        elif self._start_at and now >= self._start_at:
            self.start()
        if self._silence.look(now) and self._process and not self._process.is_traced():
            self._log.zygote_frozen()
            self._process.kill()  # from here on it is lost like any other

    def adopt(self, zygote: ZygoteProcess) -> None:
        """This one's workers are ours."""
        self._process = zygote
        self._silence.begin(loads=zygote.identity is None)
        self._pool.watch(zygote.control, self._on_zygote)
        if zygote.identity:
            self._turn_loop.tell(zygote=zygote.identity)

    def bear(self) -> None:
        """A new zygote, and workers from it; if none can be had now, it is tried again."""
        self._bear_at = None
        try:
            self.adopt(self._start_zygote())
        except OSError as error:
            self._log.no_zygote(error)
            self._bear_at = time.monotonic() + BEAR_AGAIN_S
        self.start()

    def start(self) -> None:
        """Whoever is wanted is on the way, as many as may start at a time."""
        if self._process and not self._ended:
            self._start_at = self._workers.start_more(self._process.fork, self._on_asked)

    def _on_asked(self, worker: WorkerProcess) -> None:
        self._silence.owes(worker.name, time.monotonic())
        self._pool.on_joined(worker)

    def end(self) -> None:
        """Nobody is born any more."""
        self._ended, self._start_at, self._bear_at = True, None, None

    def close(self) -> None:
        """The zygote and everybody whom it has borne are gone."""
        zygote, self._process = self._process, None
        if zygote:
            self._pool.unwatch(zygote.control)
            self._silence.begin(loads=False)
            zygote.close()

    def _on_zygote(self, _: object) -> None:
        if self._process is None:
            return
        message = self._process.hear()
        if message is None:
            self._on_zygote_lost()
        elif isinstance(message, messages.Preloaded):
            self._silence.heard(None)
            self._turn_loop.tell(zygote=(message.pid, message.ticks))
        elif isinstance(message, messages.Forked):
            self._silence.heard(message.name)
            worker = self._workers.born(message)
            if worker and worker.handle is not None:
                self._pool.watch(worker.handle, partial(self._on_gone, worker))
            elif worker:  # gone already
                self._silence.owes(worker.name, time.monotonic())
        elif isinstance(message, messages.NotForked):
            self._silence.heard(message.name)
            if unborn := self._workers.by_name.get(message.name):
                self._pool.on_lost(unborn, message.error)
        else:
            worker = self._workers.by_pid(message.pid)
            self._silence.heard(worker.name if worker else None)
            if worker:
                if message.status == 0 and worker.state == "ready" and not worker.retiring:
                    worker.retiring = "it asked to be replaced"
                self._pool.on_lost(worker, describe(message.status))

    def _on_gone(self, worker: WorkerProcess, _: object) -> None:
        """It has ended; what that means is for its zygote to say, once it has ended what is left of it."""
        self._pool.unwatch(worker.handle)
        self._silence.owes(worker.name, time.monotonic())

    def _on_zygote_lost(self) -> None:
        """Those it has borne finish what they run, then they are replaced by children of another one."""
        zygote, self._process = self._process, None
        assert zygote is not None
        self._pool.unwatch(zygote.control)
        self._silence.begin(loads=False)
        zygote.lost()
        self._log.zygote_lost()
        fresh = [worker for worker in self._workers.by_name.values() if not worker.orphan]
        self._workers.orphan_all()
        for worker in fresh:
            if worker.handle is None:
                self._pool.on_lost(worker, "was never born")
                continue
            self._pool.unwatch(worker.handle)  # we are its parent now
            self._pool.watch(worker.handle, partial(self._on_orphan_gone, worker))
            self._pool.place(worker.take_back())
            worker.hang_up()
        if not self._ended:
            self.bear()

    def _on_orphan_gone(self, worker: WorkerProcess, _: object) -> None:
        self._pool.unwatch(worker.handle)
        status = 0
        with contextlib.suppress(ChildProcessError):
            if worker.pid is not None:
                _, status = os.waitpid(worker.pid, 0)
        # First: once the job is said to be lost, it may start elsewhere.
        self._workers.end_strangers(self._process.pids() if self._process else set())
        self._pool.on_lost(worker, describe(status))


def describe(status: int) -> str:
    """How a worker ended, from its wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
