"""A queue that opens itself: at first use, again in a forked child, again after close."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.ports import Client

SETTINGS_LAST_S = 1.0  # an enqueue must not pay a query for settings that change once a month

# A forked child must not close what its parent opened, so it keeps what it inherited from being collected.
_inherited: list[Client] = []


class Connection:
    """One queue as this process uses it. Threads share it; every process has its own."""

    def __init__(self, url: str | os.PathLike[str] | None = None, token: str | None = None) -> None:
        self.url = None if url is None else absolute(os.fspath(url))
        self.token = token
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._client: Client | None = None
        self._settings: dict[str, Any] = {}
        self._settings_until = 0.0

    @property
    def client(self) -> Client:
        """The engine, open in this process."""
        if self._pid != os.getpid():
            self._start_over()
        return self._client or self._open()

    def settings(self) -> dict[str, Any]:
        """What is configured, at most a second old. The same object as before while nothing has changed."""
        now = time.monotonic()
        if now >= self._settings_until or self._pid != os.getpid():
            found = self.client.settings()
            if found != self._settings:
                self._settings = found
            self._settings_until = now + SETTINGS_LAST_S
        return self._settings

    def close(self) -> None:
        """Nothing is open here; the next use opens it again. In a forked child the parent's stays as it is."""
        if self._pid != os.getpid():
            self._start_over()
        with self._lock:
            client, self._client = self._client, None
            self._settings_until = 0.0
        if client is not None:
            client.close()

    def _open(self) -> Client:
        with self._lock:
            if self._client is None:
                from .open import open_client  # here, because a program may declare tasks and never enqueue one

                self._client = open_client(self.url, token=self.token)
            return self._client

    def _start_over(self) -> None:
        """The child of a fork has nothing open, and a lock that no thread of its parent can have left closed."""
        self._lock = threading.Lock()
        if self._client is not None:
            _inherited.append(self._client)
            self._client = None
        self._settings_until = 0.0
        self._pid = os.getpid()


def absolute(url: str) -> str:
    """A path that means the same file after a chdir; anything else as it is."""
    if not url or url.startswith(("memory:", ":memory:")) or "://" in url or "\x00" in url:
        return url
    return os.path.abspath(os.path.expanduser(url))
