"""A directory for live output of our own, where the queue has none on this host: behind a server, in memory."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile

from ..env import alive, boot


def _mark() -> str:
    """Where the pid in a name means something: a container may share the directory, but not the pids."""
    return f"covey-live-{boot().replace(':', '.')}-"


def create(ticks: int) -> str:
    """Named after its pool, so that whoever comes later knows whether it is still used."""
    path = os.path.join(tempfile.gettempdir(), f"{_mark()}{os.getpid()}-{ticks}")
    os.mkdir(path, 0o700)
    return path


def remove(path: str) -> None:
    if path:
        shutil.rmtree(path, ignore_errors=True)


def stale() -> list[str]:
    """Those of this user's pools that are gone."""
    name = re.compile(re.escape(_mark()) + r"(\d+)-(\d+)")
    found: list[str] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            match = name.fullmatch(entry.name)
            if match and not alive(int(match[1]), int(match[2])) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        found.append(entry.path)
    return found


def sweep() -> None:
    """Those of pools that are gone are gone too."""
    for path in stale():
        remove(path)
