"""What a job writes, as it writes it: live files while it runs, the stored history afterwards."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol, TextIO, cast

from ..core.model import ENDED
from ..errors import NotFound
from .open_queue import listen_for_ends
from .printing import safe
from .slow_reader import shown

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..core.view import Attempt, JobView
    from ..remote.remote import Remote
    from ..store.store import Store

LOOK_S = 0.1
NOTE = "\n[covey: "  # where the stored text has lost its middle
OVERLAP = 4096  # characters by which the stored text is matched with what was shown already


class Out(Protocol):
    """Where text goes."""

    def write(self, text: str, /) -> None: ...


class Plain:
    """Standard output or error, for as long as it takes."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    def write(self, text: str) -> None:
        if text:
            self._target.flush()
            self._target.buffer.write(shown(text, self._target))
            self._target.buffer.flush()


Outs = tuple[Out, Out]


def plain_outs() -> Outs:
    return Plain(sys.stdout), Plain(sys.stderr)


def write_attempt(run: Attempt, outs: Outs | None = None) -> None:
    """Everything that the attempt wrote is out, each stream on its own."""
    out, err = outs or plain_outs()
    out.write(run.stdout)
    err.write(run.stderr)
    write_detail(run, err)


def write_detail(run: Attempt, err: Out) -> None:
    """The traceback of a task that raised is out, after what it wrote, where Python itself would print it."""
    if run.detail:
        ends = not run.stderr or run.stderr.endswith("\n")
        err.write(f"{'' if ends else chr(10)}{run.detail.rstrip()}\n")


class LiveStream:
    """One stream of a running attempt."""

    def __init__(self, path: str, out: Out) -> None:
        self._path, self._out = path, out
        self._file: BinaryIO | None = None
        self._turned = False  # the file was followed by another: if by more than one, something was missed
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._shown = 0
        self._end = ""

    def feed(self, data: bytes, *, turned: bool) -> None:
        """The same, if somebody else has looked."""
        self._turned = self._turned or turned
        self._show(self._decode(data).replace("\x00", "\ufffd"))

    def poll(self) -> None:
        """What has been written since the last look is out."""
        data = self._read()
        if self._file is None or self._is_followed():
            data += self._read()  # the last words of the old one
            self.close()
            with contextlib.suppress(OSError):
                self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115 — read on at the next look
            data += self._read()
        self._show(self._decode(data).replace("\x00", "\ufffd"))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_followed(self) -> bool:
        """Whether another file has the name by now. Then nothing more is written to the old one."""
        assert self._file is not None
        try:
            now, then = os.stat(self._path), os.fstat(self._file.fileno())
        except OSError:
            return False  # gone: the job has ended, and the open file still has its last words
        if (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino):
            return False
        self._turned = True
        return True

    def _read(self) -> bytes:
        return b"" if self._file is None else self._file.read()

    def finish(self, stored: str, dropped: int) -> None:
        """What the stored text has beyond what was shown is out."""
        if not self._shown:
            rest = stored
        elif not dropped and not self._turned:
            rest = stored[self._shown :]
        else:
            place = stored.rfind(self._end)
            # Not there: what was shown last is part of what was dropped, so the head was shown already.
            rest = stored[place + len(self._end) if place >= 0 else max(0, stored.find(NOTE)) :]
        self._show(rest)

    def _show(self, text: str) -> None:
        # Counted first: an outlet that is interrupted keeps the rest of the text, and it is not to be shown twice.
        self._shown += len(text)
        self._end = (self._end + text)[-OVERLAP:]
        self._out.write(text)


class LiveRun:
    """Both streams of one attempt: files beside the database, or what a server tells of them."""

    def __init__(self, engine: Client, job: int, fence: int, outs: Outs | None = None) -> None:
        out, err = outs or plain_outs()
        store: Store | None = getattr(engine, "store", None)
        live = os.path.join(store.dialect.side if store else "", "live", f"{job}.{fence}")
        self.fence = fence
        self._out = LiveStream(live + ".out", out)
        self._err = LiveStream(live + ".err", err)
        self._said = err
        self._server: Remote | None = None if store else cast("Remote", engine)
        self._job, self._places = job, (0, 0)

    def poll(self) -> None:
        if self._server is not None:
            self._ask(self._server)
            return
        self._out.poll()
        self._err.poll()

    def _ask(self, server: Remote) -> None:
        out, err = self._places
        found = server.output(self._job, fence=self.fence, out=out, err=err)
        self._places = found.out, found.err  # first: what is fed may be interrupted, and is not asked for again
        self._out.feed(found.stdout, turned=found.out != out + len(found.stdout))
        self._err.feed(found.stderr, turned=found.err != err + len(found.stderr))

    def close(self) -> None:
        self._out.close()
        self._err.close()

    def finish(self, run: Attempt | None) -> None:
        self.close()
        if run is not None:
            self._out.finish(run.stdout, run.stdout_dropped)
            self._err.finish(run.stderr, run.stderr_dropped)
            write_detail(run, self._said)


class Follower:
    """What one job writes, from its first line to its last. Whoever was interrupted follows on where he was."""

    def __init__(self, engine: Client, job: int, *, seen: set[int], outs: Outs | None = None) -> None:
        """``seen``: fences of attempts that shall not be shown."""
        self._engine, self._job, self._seen = engine, job, seen
        self._outs = outs or plain_outs()
        self._current: LiveRun | None = None
        self._before: tuple[str, int, int | None] | None = None

    def follow(self, tick: Callable[[JobView], None] = lambda view: None) -> JobView | None:
        """The job has ended (None: it was removed) and what it wrote is out. ``tick`` may raise to interrupt."""
        ear = listen_for_ends(self._engine)
        try:
            while True:
                try:
                    view = self._engine.job(self._job)
                except NotFound:
                    return None
                self._show(view)
                if view.state in ENDED and view.pool is None:
                    return view
                tick(view)
                ear.wait(LOOK_S)
        finally:
            ear.close()

    def close(self) -> None:
        if self._current:
            self._current.close()

    def _show(self, view: JobView) -> None:
        """What was written up to this moment is out."""
        running = view.state == "processing" and view.fence not in self._seen
        if running and (self._current is None or self._current.fence != view.fence):
            self._catch_up(view)
            self._current = LiveRun(self._engine, self._job, view.fence, self._outs)
        if self._current:
            self._current.poll()
        now = (view.state, view.fence, view.pool)
        if view.pool is None and now != self._before:
            self._catch_up(view)
            self._current = None
        self._before = now

    def _catch_up(self, view: JobView) -> None:
        """Attempts that are over and were not shown in full are now; one that is to be tried again is said."""
        for run in self._engine.history(view.id):
            if run.fence in self._seen:
                continue
            self._seen.add(run.fence)
            if self._current is not None and run.fence == self._current.fence:
                self._current.finish(run)
            else:
                write_attempt(run, self._outs)
            if view.state not in ENDED and run.error:
                said = f"covey: attempt {run.number} of {view.max_attempts} failed: {safe(run.error)}\n"
                self._outs[1].write(said)


def follow(
    engine: Client, job: int, *, seen: set[int], tick: Callable[[JobView], None] = lambda view: None
) -> JobView | None:
    """The job has ended (None: it was removed) and what it wrote is out, but for attempts with a fence in ``seen``."""
    follower = Follower(engine, job, seen=seen)
    try:
        return follower.follow(tick)
    finally:
        follower.close()
