"""What a job writes: head and tail up to a cap, and a file beside the database while it runs."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat

from ..core.model import Output
from ..env import output_mode

CAP = 1 << 20  # bytes kept of each stream: half from the head, half from the tail
ROTATE = 1 << 20  # a live file is followed by another at this size
HOLLOW = 8 << 20  # a live file that takes more of the disk than this loses its middle
PUNCH_HOLE_KEEP_SIZE = 3
NAMELESS = "/memfd:covey-out"
off_t = ctypes.c_longlong
_libc = ctypes.CDLL(None)


class Capture:
    """One stream. Memory stays bounded however much is written."""

    def __init__(self, live: str | None = None) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._live_path = live
        self._live: int | None = None
        self._live_size = 0

    def write(self, data: bytes) -> None:
        if self._live_path:
            self._show(data)
        room = CAP // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > CAP:
                self._trim()

    def skip(self, count: int) -> None:
        """That many bytes were written and not kept."""
        self._trim()
        self._dropped += count + len(self._tail)
        self._tail.clear()

    def finish(self) -> tuple[bytes, int]:
        """(what is kept, how many bytes were dropped in the middle)."""
        if self._live is not None:
            os.close(self._live)
            self._live = None
        self._live_path = None  # what a task writes after its end is shown to nobody
        self._trim()
        if not self._dropped:
            return bytes(self._head + self._tail), 0
        note = f"\n[covey: {self._dropped:,} bytes dropped here]\n".encode()
        return bytes(self._head + note + self._tail), self._dropped

    def _trim(self) -> None:
        extra = len(self._tail) - CAP // 2
        if extra > 0:
            del self._tail[:extra]
            self._dropped += extra

    def _show(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not fail the job
            if self._live is not None and self._live_size + len(data) > ROTATE:
                # A new file under the old name, cut between two lines: a follower reads the old one to its end first.
                cut = data.rfind(b"\n") + 1
                os.write(self._live, data[:cut])
                data = data[cut:]
                os.close(self._live)
                self._live, self._live_size = None, 0
                os.unlink(str(self._live_path))
            if self._live is None:
                self._live = open_plain(str(self._live_path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(self._live, data)
            self._live_size += len(data)


def live_path(directory: str, job: int, fence: int, stream: str) -> str:
    return os.path.join(directory, f"{job}.{fence}.{stream}")


def show_info(path: str, text: str) -> None:
    """The file begins with this line. What an earlier, longer one has left behind it means nothing.

    So it costs no truncation, and a reader sees one of the two; a mixture is no JSON, and nobody shows it.
    """
    with contextlib.suppress(OSError):
        fd = open_plain(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(fd, f"{text}\n".encode(), 0)
        finally:
            os.close(fd)


def open_plain(path: str, flags: int) -> int:
    """A descriptor of a plain file of our own; OSError for anything else that jobs may have put in its place.

    A pipe would make us wait, a device read or write for ever, a link lead elsewhere.
    """
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, output_mode(path))
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a plain file of ours", path)


def join(out: Capture, err: Capture) -> Output | None:
    """Both streams, or None if nothing was written."""
    stdout, stdout_dropped = out.finish()
    stderr, stderr_dropped = err.finish()
    if not stdout and not stderr:
        return None
    return Output(stdout, stderr, stdout_dropped, stderr_dropped)


def drop_live(directory: str, job: int, fence: int) -> None:
    """Nothing that a run left in the directory is there any more."""
    for stream in ("out", "err", "spawn", "info"):
        with contextlib.suppress(OSError):
            os.unlink(live_path(directory, job, fence, stream))


def salvage(directory: str, job: int, fence: int) -> Output | None:
    """What a killed worker's job had written, as far as its live files show."""
    out, err = Capture(), Capture()
    for stream, capture in (("out", out), ("err", err)):
        with contextlib.suppress(OSError):
            fd = open_plain(live_path(directory, job, fence, stream), os.O_RDONLY)
            try:
                read_ends(fd, capture)
            finally:
                os.close(fd)
    return join(out, err)


def read_ends(fd: int, capture: Capture) -> None:
    """Head and tail of the file; the middle of a huge one is counted, not read."""
    size = os.fstat(fd).st_size
    if size <= 2 * CAP:
        capture.write(os.pread(fd, size, 0))
        return
    capture.write(os.pread(fd, CAP, 0))
    capture.skip(size - 2 * CAP)
    capture.write(os.pread(fd, CAP, size - CAP))


def hollow_out(directory: str, pid: int) -> None:
    """A task that writes without end fills no disk: the middle of what it wrote, which nobody will read, is a hole.

    Only in files of ours: a task may have put its own in the place of its standard streams.
    """
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            path = f"/proc/{pid}/fd/{stream}"
            place = os.path.join(os.path.realpath(directory), "") if directory else NAMELESS
            if not os.readlink(path).startswith((place, NAMELESS)):
                continue
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                found = os.fstat(fd)
                if found.st_blocks * 512 > HOLLOW:
                    _libc.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, off_t(CAP), off_t(found.st_size - 2 * CAP))
            finally:
                os.close(fd)
