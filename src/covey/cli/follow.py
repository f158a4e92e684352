"""What a job writes, as it writes it: live files while it runs, the stored history afterwards."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from ..core.model import ENDED
from ..errors import NotFound
from .opening import listen_for_ends
from .output import note, safe

if TYPE_CHECKING:
    from ..core.ports import Client
    from ..core.view import Attempt, JobView
    from ..remote.remote import Remote
    from ..store.store import Store

LOOK_S = 0.1
OVERLAP = 4096  # characters by which the stored text is matched with what was shown already
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def write(text: str, target: TextIO) -> None:
    """The text is out: as it is in a pipe, harmless on a terminal."""
    if not text:
        return
    if target.isatty():
        text = safe(_COLOUR.sub("", text).replace("\r\n", "\n"))
    target.flush()
    target.buffer.write(text.encode("utf-8", "replace"))
    target.buffer.flush()


def write_attempt(run: Attempt) -> None:
    """Everything that the attempt wrote is out, each stream on its own."""
    write(run.stdout, sys.stdout)
    write(run.stderr, sys.stderr)
    write_detail(run)


def write_detail(run: Attempt) -> None:
    """The traceback of a task that raised is out, after what it wrote, where Python itself would print it."""
    if run.detail:
        ends = not run.stderr or run.stderr.endswith("\n")
        write(f"{'' if ends else chr(10)}{run.detail.rstrip()}\n", sys.stderr)


class LiveStream:
    """One stream of a running attempt."""

    def __init__(self, path: str, target: TextIO) -> None:
        self._path, self._target = path, target
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
            rest = stored[place + len(self._end) :] if place >= 0 else stored
        self._show(rest)

    def _show(self, text: str) -> None:
        write(text, self._target)
        self._shown += len(text)
        self._end = (self._end + text)[-OVERLAP:]


class LiveRun:
    """Both streams of one attempt: files beside the database, or what a server tells of them."""

    def __init__(self, engine: Client, job: int, fence: int) -> None:
        store: Store | None = getattr(engine, "store", None)
        live = os.path.join(store.dialect.side if store else "", "live", f"{job}.{fence}")
        self.fence = fence
        self._out = LiveStream(live + ".out", sys.stdout)
        self._err = LiveStream(live + ".err", sys.stderr)
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
        self._out.feed(found.stdout, turned=found.out != out + len(found.stdout))
        self._err.feed(found.stderr, turned=found.err != err + len(found.stderr))
        self._places = found.out, found.err

    def close(self) -> None:
        self._out.close()
        self._err.close()

    def finish(self, run: Attempt | None) -> None:
        self.close()
        if run is not None:
            self._out.finish(run.stdout, run.stdout_dropped)
            self._err.finish(run.stderr, run.stderr_dropped)
            write_detail(run)


def follow(
    engine: Client, job: int, *, seen: set[int], tick: Callable[[JobView], None] = lambda view: None
) -> JobView | None:
    """The job has ended (None: it was removed) and what it wrote is out, but for attempts with a fence in ``seen``."""
    current: LiveRun | None = None
    before: tuple[str, int, int | None] | None = None
    ear = listen_for_ends(engine)
    try:
        while True:
            try:
                view = engine.job(job)
            except NotFound:
                return None
            if (
                view.state == "processing"
                and (current is None or current.fence != view.fence)
                and view.fence not in seen
            ):
                _catch_up(engine, view, current, seen)
                current = LiveRun(engine, job, view.fence)
            if current:
                current.poll()
            now = (view.state, view.fence, view.pool)
            if view.pool is None and now != before:
                _catch_up(engine, view, current, seen)
                current = None
            before = now
            if view.state in ENDED and view.pool is None:
                return view
            tick(view)
            ear.wait(LOOK_S)
    finally:
        ear.close()
        if current:
            current.close()


def _catch_up(engine: Client, view: JobView, current: LiveRun | None, seen: set[int]) -> None:
    """Attempts that are over and were not shown in full are now; one that is to be tried again is said."""
    for run in engine.history(view.id):
        if run.fence in seen:
            continue
        if current is not None and run.fence == current.fence:
            current.finish(run)
        else:
            write_attempt(run)
        seen.add(run.fence)
        if view.state not in ENDED and run.error:
            note(f"covey: attempt {run.number} of {view.max_attempts} failed: {safe(run.error)}")
