"""Where a pool's workers come from: a zygote, another one when it is lost, and the end of what it has borne."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from ..core.model import Claim
from ..log import Log
from ..worker import messages
from .silence import Silence
from .turn_loop import Exchange
from .worker_process import Member
from .workers import Crew, describe
from .zygote_process import Nursery

BEAR_AGAIN_S = 1.0


class Yard(Protocol):
    """What the pool does for us."""

    def watch(self, file: Any, act: Callable[[Any], None]) -> None: ...

    def unwatch(self, file: Any) -> None: ...

    def on_joined(self, member: Member) -> None: ...

    def on_lost(self, member: Member, how: str) -> None: ...

    def place(self, claims: Iterable[Claim]) -> None: ...


class Births:
    def __init__(self, pool: Yard, crew: Crew, exchange: Exchange, log: Log, birth: Callable[[], Nursery]) -> None:
        self._pool, self._crew, self._exchange, self._log, self._birth = pool, crew, exchange, log, birth
        self._nursery: Nursery | None = None
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
        if self._silence.look(now) and self._nursery and not self._nursery.is_traced():
            self._log.zygote_frozen()
            self._nursery.kill()  # from here on it is lost like any other

    def adopt(self, nursery: Nursery) -> None:
        """This one's workers are ours."""
        self._nursery = nursery
        self._silence.begin(loads=nursery.zygote is None)
        self._pool.watch(nursery.control, self._on_zygote)
        if nursery.zygote:
            self._exchange.tell(zygote=nursery.zygote)

    def bear(self) -> None:
        """A new zygote, and workers from it; if none can be had now, it is tried again."""
        self._bear_at = None
        try:
            self.adopt(self._birth())
        except OSError as error:
            self._log.no_zygote(error)
            self._bear_at = time.monotonic() + BEAR_AGAIN_S
        self.start()

    def start(self) -> None:
        """Whoever is wanted is on the way, as many as may start at a time."""
        if self._nursery and not self._ended:
            self._start_at = self._crew.start_more(self._nursery, self._on_asked)

    def _on_asked(self, member: Member) -> None:
        self._silence.owes(member.name, time.monotonic())
        self._pool.on_joined(member)

    def end(self) -> None:
        """Nobody is born any more."""
        self._ended, self._start_at, self._bear_at = True, None, None

    def close(self) -> None:
        """The zygote and everybody whom it has borne are gone."""
        nursery, self._nursery = self._nursery, None
        if nursery:
            self._pool.unwatch(nursery.control)
            self._silence.begin(loads=False)
            nursery.close()

    def _on_zygote(self, _: object) -> None:
        if self._nursery is None:
            return
        message = self._nursery.hear()
        if message is None:
            self._on_zygote_lost()
        elif isinstance(message, messages.Preloaded):
            self._silence.heard(None)
            self._exchange.tell(zygote=(message.pid, message.ticks))
        elif isinstance(message, messages.Forked):
            self._silence.heard(message.name)
            member = self._crew.born(message)
            if member and member.handle is not None:
                self._pool.watch(member.handle, partial(self._on_gone, member))
            elif member:  # gone already
                self._silence.owes(member.name, time.monotonic())
        elif isinstance(message, messages.Unborn):
            self._silence.heard(message.name)
            if unborn := self._crew.members.get(message.name):
                self._pool.on_lost(unborn, message.error)
        else:
            member = self._crew.by_pid(message.pid)
            self._silence.heard(member.name if member else None)
            if member:
                if message.status == 0 and member.state == "ready" and not member.retiring:
                    member.retiring = "it asked to be replaced"
                self._pool.on_lost(member, describe(message.status))

    def _on_gone(self, member: Member, _: object) -> None:
        """It has ended; what that means is for its zygote to say, once it has ended what is left of it."""
        self._pool.unwatch(member.handle)
        self._silence.owes(member.name, time.monotonic())

    def _on_zygote_lost(self) -> None:
        """Those it has borne finish what they run, then they are replaced by children of another one."""
        nursery, self._nursery = self._nursery, None
        assert nursery is not None
        self._pool.unwatch(nursery.control)
        self._silence.begin(loads=False)
        nursery.lost()
        self._log.zygote_lost()
        fresh = [member for member in self._crew.members.values() if not member.orphan]
        self._crew.orphan_all()
        for member in fresh:
            if member.handle is None:
                self._pool.on_lost(member, "was never born")
                continue
            self._pool.unwatch(member.handle)  # we are its parent now
            self._pool.watch(member.handle, partial(self._on_orphan_gone, member))
            self._pool.place(member.take_back())
            member.hang_up()
        if not self._ended:
            self.bear()

    def _on_orphan_gone(self, member: Member, _: object) -> None:
        self._pool.unwatch(member.handle)
        status = 0
        with contextlib.suppress(ChildProcessError):
            if member.pid is not None:
                _, status = os.waitpid(member.pid, 0)
        # First: once the job is said to be lost, it may start elsewhere.
        self._crew.end_strangers(self._nursery.pids() if self._nursery else set())
        self._pool.on_lost(member, describe(status))
