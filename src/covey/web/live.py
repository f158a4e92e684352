"""Output of running jobs: files beside the database, read from where the asker stopped."""

from __future__ import annotations

import os

from ..core.wire import LiveOutput

MOST = 1 << 20  # bytes of each stream in one answer


def read_live(side: str, job: int, fence: int, out: int, err: int) -> LiveOutput:
    """What there is beyond these places. Both names are numbers, so no path can lead elsewhere."""
    stdout, out = _read(side, job, fence, "out", out)
    stderr, err = _read(side, job, fence, "err", err)
    return LiveOutput(fence, stdout, stderr, out, err)


def _read(side: str, job: int, fence: int, stream: str, place: int) -> tuple[bytes, int]:
    if not side:
        return b"", place
    path = os.path.join(side, "live", f"{int(job)}.{int(fence)}.{stream}")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b"", place
    try:
        size = os.fstat(fd).st_size
        place = place if 0 <= place <= size else 0  # a full file was followed by another
        data = os.pread(fd, MOST, place)
    finally:
        os.close(fd)
    return data, place + len(data)
