"""Where no bell can be hung: nobody is woken, and whoever waits looks now and then."""

from __future__ import annotations

import errno
from typing import NoReturn


class NoBell:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def ring(self, who: str) -> None:
        pass

    def listen(self, who: str) -> NoReturn:
        raise OSError(errno.ENOTSUP, "this system has no sockets of that kind", self._directory)

    def close(self) -> None:
        pass
