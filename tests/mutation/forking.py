"""Many small pieces of work, each in a fork of this process, a few at a time."""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")

LONGEST_S = 1200.0  # each test has its own limit, so this is no verdict about the work


class Ended(NamedTuple):
    said: str  # what the work returned; empty if it was killed
    signal: int  # that ended it, 0 if none did
    seconds: float


def forked(work: Callable[[T], str], tasks: Iterable[T], jobs: int) -> Iterator[tuple[T, Ended]]:
    """(task, how it ended) as they end. What a piece of work leaves running in its process group is killed."""
    gc.freeze()  # what is there already needs no looking through in every fork
    waiting = iter(tasks)
    running: dict[int, tuple[T, int, float]] = {}  # read end → task, pid, since
    with selectors.DefaultSelector() as selector:
        while True:
            while len(running) < jobs and (task := next(waiting, None)) is not None:
                pid, reader = _fork(work, task)
                running[reader] = (task, pid, time.monotonic())
                selector.register(reader, selectors.EVENT_READ)
            if not running:
                return
            ready = {int(key.fd) for key, _ in selector.select(1.0)}  # type: ignore[call-overload]
            for reader, (task, pid, since) in list(running.items()):
                late = time.monotonic() - since > LONGEST_S
                if reader in ready or late:
                    del running[reader]
                    selector.unregister(reader)
                    said = b"! it took too long" if late else _read(reader)
                    os.close(reader)
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL if late or not said else signal.SIGTERM)
                    _, status = os.waitpid(pid, 0)
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                    by = os.WTERMSIG(status) if os.WIFSIGNALED(status) and not said else 0
                    yield task, Ended(said.decode(), by, time.monotonic() - since)


def _fork(work: Callable[[T], str], task: T) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        os.setsid()
        os.close(reader)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        os.write(writer, work(task).encode())
    except BaseException:
        os.write(writer, b"! " + traceback.format_exc().encode()[-4000:])
    finally:
        os._exit(0)


def _read(reader: int) -> bytes:
    parts = []
    while part := os.read(reader, 65536):
        parts.append(part)
    return b"".join(parts)
