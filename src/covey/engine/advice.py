"""Commands that a person is advised to type: complete, so that they can be pasted. Which queue is meant, who prints
them knows (`cli/pasting.py`)."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.view import PoolView

UNKNOWN = "MODULE:APP"


def start(*, queue: str | None = None, kind: str = "command", pools: Iterable[PoolView] = (), task: str = "") -> str:
    """Starts a pool that serves the queue and can run such jobs."""
    words = ["covey worker start"]
    words += [f"--queue {quoted(queue)}"] if queue else []
    words += [f"--app {quoted(app_of(pools, task))}"] if kind != "command" else []
    return " ".join(words)


def app_of(pools: Iterable[PoolView], task: str = "") -> str:
    """The app that pools of this queue have, the latest first; else where the task's name says that it is."""
    if apps := [pool.app for pool in pools if pool.app]:
        return apps[-1]
    module = task.rpartition(".")[0]
    return f"{module}:app" if module and module != "__main__" else UNKNOWN


def quoted(word: str) -> str:
    """The word as a shell takes it."""
    from shlex import quote

    return quote(word)
