"""Output of running jobs: files beside the database, read from where the asker stopped."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from ..core.wire import LiveOutput

MOST = 1 << 20  # bytes of each stream in one answer


class LiveFile(NamedTuple):
    """One stream of one run. Without a directory nothing is kept."""

    path: str

    def read(self, place: int = 0, most: int | None = None) -> bytes:
        if not self.path:
            return b""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return b""
        with open(fd, "rb") as file:
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
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        if self.size() + len(data) > most:
            kept = (self.read() + data)[-most // 2 :]
            part = f"{self.path}.part"
            with open(part, "wb") as file:
                file.write(kept)
            os.replace(part, self.path)
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.path, flags, 0o600), "ab") as file:
            file.write(data)

    def remove(self) -> None:
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def live_file(side: str, job: int, fence: int, stream: str) -> LiveFile:
    """Both names are numbers, so no path can lead elsewhere."""
    return LiveFile(os.path.join(side, "live", f"{int(job)}.{int(fence)}.{stream}") if side else "")


def read_live(side: str, job: int, fence: int, out: int, err: int) -> LiveOutput:
    """What there is beyond these places."""
    stdout, out = _read(live_file(side, job, fence, "out"), out)
    stderr, err = _read(live_file(side, job, fence, "err"), err)
    return LiveOutput(fence, stdout, stderr, out, err)


def _read(file: LiveFile, place: int) -> tuple[bytes, int]:
    place = place if 0 <= place <= file.size() else 0  # a full file was followed by another
    data = file.read(place, MOST)
    return data, place + len(data)
