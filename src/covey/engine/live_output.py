"""Output of running jobs: files beside the database, read from where the asker stopped."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import BinaryIO, NamedTuple

from ..core.codec import decode, is_json
from ..core.view import JobView, LiveOutput
from ..env import output_mode
from ..errors import LeaseLost, StoreError
from ..store.store import Store

MOST = 1 << 20  # bytes of each stream in one answer
MOST_LIVE = 4 << 20  # bytes of one stream that are kept while the job runs elsewhere
MOST_INFO = 256 << 10  # bytes of what a running job says of itself
STREAMS = ("out", "err")


class Live:
    """The part of the engine that knows what running jobs write."""

    store: Store

    def job(self, ref: str | int) -> JobView:
        raise NotImplementedError

    def output(self, ref: str | int, *, fence: int | None = None, out: int = 0, err: int = 0) -> LiveOutput:
        """What the running attempt has written beyond these places, as far as it can be seen from here."""
        view = self.job(ref)
        side, run = self.store.dialect.side, view.fence if fence is None else fence
        stdout, out = _read(live_file(side, view.id, run, "out"), out)
        stderr, err = _read(live_file(side, view.id, run, "err"), err)
        return LiveOutput(run, stdout, stderr, out, err)

    def show_output(
        self, pool: int, job: int, fence: int, stdout: str, stderr: str, *, info: str | None = None
    ) -> None:
        """More of what a run writes that has no directory here: it can be followed from now on."""
        view = self.job(job)
        if view.pool != pool or fence != view.fence - (view.state == "cancelled"):  # a cancel raises it by one
            raise LeaseLost(f"job {job} is not yours any more: it was given up, or it has ended")
        for stream, text in (("out", stdout), ("err", stderr)):
            live_file(self.store.dialect.side, job, fence, stream).append(text.encode("utf-8", "replace"), MOST_LIVE)
        if info is not None and len(info) < MOST_INFO and is_json(info):
            line = " ".join(info.splitlines()) + "\n"
            shown = live_file(self.store.dialect.side, job, fence, "info")
            shown.remove()
            shown.append(line.encode(), MOST_INFO)

    def hide_output(self, job: int, fence: int) -> None:
        """The run has ended: what it wrote is in its history."""
        for stream in (*STREAMS, "info"):
            live_file(self.store.dialect.side, job, fence, stream).remove()

    def shown_output(self, job: int, fence: int) -> tuple[bytes, bytes]:
        """All that was shown of a run."""
        out, err = (live_file(self.store.dialect.side, job, fence, stream).read() for stream in STREAMS)
        return out, err


def with_info(store: Store, view: JobView) -> JobView:
    """The job as it is; one that runs with what it says of itself, as far as that can be seen from here."""
    if view.state == "processing" and store.dialect.side:
        shown = live_file(store.dialect.side, view.id, view.fence, "info").read(most=MOST_INFO)
        line, ended, _ = shown.partition(b"\n")
        with contextlib.suppress(ValueError, RecursionError):  # two that were written one over the other
            view.info = decode(line.decode()) if ended else view.info
    return view


class LiveFile(NamedTuple):
    """One stream of one run. Without a directory nothing is kept."""

    path: str

    def read(self, place: int = 0, most: int | None = None) -> bytes:
        try:
            file = _opened(self.path, os.O_RDONLY)
        except OSError:
            return b""
        with file:
            file.seek(place)
            return file.read(-1 if most is None else most)

    def size(self) -> int:
        try:
            return os.stat(self.path, follow_symlinks=False).st_size if self.path else 0
        except OSError:
            return 0

    def append(self, data: bytes, most: int) -> None:
        """More was written. Above ``most`` bytes the older half goes: a job may write for days."""
        if not self.path or not data:
            return
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            if self.size() + len(data) <= most:
                with _opened(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                    file.write(data)
                return
            kept = (self.read() + data)[-most // 2 :]
            part = f"{self.path}.part"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            with _opened(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
                file.write(kept)
            os.replace(part, self.path)
        except OSError as error:
            # No path: whoever sends output over HTTP is told why, not where.
            name = f"live/{os.path.basename(error.filename or self.path)}"
            raise StoreError(f"output of a running job cannot be kept: {error.strerror or error}: {name}") from None

    def remove(self) -> None:
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _opened(path: str, flags: int) -> BinaryIO:
    """A plain file of our own: no link leads elsewhere, and no pipe makes us wait."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, output_mode(path))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a plain file")
    return open(fd, "rb" if flags == os.O_RDONLY else "wb")


def live_file(side: str, job: int, fence: int, stream: str) -> LiveFile:
    """Both names are numbers, so no path can lead elsewhere."""
    return LiveFile(os.path.join(side, "live", f"{int(job)}.{int(fence)}.{stream}") if side else "")


def _read(file: LiveFile, place: int) -> tuple[bytes, int]:
    place = place if 0 <= place <= file.size() else 0  # a full file was followed by another
    data = file.read(place, MOST)
    return data, place + len(data)
