"""What jobs write here, as they write it, for a queue that cannot see our files: once a second what is new is sent."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import threading
from collections.abc import Callable

from ..core.ports import Source
from ..errors import CoveyError
from ..worker.output import open_plain

PERIOD_S = 1.0
MOST = 256 << 10  # bytes of one stream at a time: what is left out here is in the history later
MOST_INFO = 128 << 10  # more than a task may say of itself
OF_A_RUN = re.compile(r"(\d+)\.(\d+)\.(out|err|info)")


class Tail:
    """One stream of one run."""

    def __init__(self) -> None:
        self._place = 0
        self._file = (0, 0)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def more(self, path: str) -> str:
        try:
            with open(open_plain(path, os.O_RDONLY), "rb") as file:
                found = os.fstat(file.fileno())
                if (found.st_dev, found.st_ino) != self._file:  # a full one was followed by another
                    self._file, self._place = (found.st_dev, found.st_ino), 0
                self._place = max(self._place, found.st_size - MOST)
                file.seek(self._place)
                data = file.read(MOST)
        except OSError:
            return ""  # its run has just ended
        self._place += len(data)
        return self._decode(data)


class Line:
    """The first line of a file, whenever it is another one than before."""

    def __init__(self) -> None:
        self._last = b""

    def more(self, path: str) -> str:
        try:
            with open(open_plain(path, os.O_RDONLY), "rb") as file:
                line, ended, _ = file.read(MOST_INFO).partition(b"\n")
        except OSError:
            return ""
        if not ended or line == self._last:
            return ""
        self._last = line
        return line.decode("utf-8", "replace")


class OutputSender:
    """A thread that follows every file in our directory of live output."""

    def __init__(self, source: Source, directory: str, pool: Callable[[], int]) -> None:
        self._source, self._directory, self._pool = source, directory, pool
        self._known: dict[str, Tail | Line] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="covey-tails", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(PERIOD_S):
            with contextlib.suppress(CoveyError, OSError):  # who follows sees it later, in the history
                self._look()

    def _look(self) -> None:
        names = sorted(name for name in os.listdir(self._directory) if OF_A_RUN.fullmatch(name))
        self._known = {name: self._known.get(name) or (Line() if name.endswith("info") else Tail()) for name in names}
        runs: dict[tuple[int, int], dict[str, str]] = {}
        for name, tail in self._known.items():
            job, fence, stream = name.split(".")
            if text := tail.more(os.path.join(self._directory, name)):
                runs.setdefault((int(job), int(fence)), {})[stream] = text
        for run, told in runs.items():
            with contextlib.suppress(CoveyError):  # it has ended, or is somebody else's by now
                self._source.show_output(
                    self._pool(), *run, told.get("out", ""), told.get("err", ""), info=told.get("info")
                )
