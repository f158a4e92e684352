"""Processes and their descendants: found by adoption, ended by TERM, grace, KILL, verified gone."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Container

from ..env import start_ticks
from .mark import MARK

PR_SET_CHILD_SUBREAPER = 36
PR_SET_PDEATHSIG = 1
MOST_ZOMBIES = 100


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children: nothing escapes by forking twice."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """This process gets TERM when the thread that started it ends, also by kill -9."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def die_with(lifeline: int) -> None:
    """The kernel kills this process when the other end of the pipe is closed, whatever it is doing then.

    The second line behind the zygote: a function that holds the interpreter would not see its pool go.
    """
    # Asynchronous notice belongs to an open file: through /proc this process gets one of its own on the same pipe.
    own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    if select.select([own], [], [], 0)[0]:  # it was closed before we asked
        os._exit(0)


def is_empty() -> bool:
    """True when this process has no child left, not even a zombie. One system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def children(pid: int) -> list[int]:
    """Its direct children, zombies included."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                found += map(int, listed.read().split())
    except OSError:
        pass
    return found


def descendants(pid: int, keep: Container[int] = ()) -> list[int]:
    """Everything below a process, parents before children; nothing of the subtrees in ``keep``."""
    found = [child for child in children(pid) if child not in keep]
    for child in found:
        found += children(child)
    return found


def send(pids: list[int], number: int) -> list[int]:
    """They have the signal; those that may not be signalled by us (of another user) are told."""
    refused = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            refused.append(pid)
    return refused


def is_burdened() -> bool:
    """Whether this process has more dead children than it should carry. In a Python worker they may be somebody's to
    wait for, so they are never taken from under user code; a fresh worker takes over instead."""
    if is_empty():
        return False
    found = children(os.getpid())
    return len(found) > MOST_ZOMBIES and sum(start_ticks(pid) is None for pid in found) > MOST_ZOMBIES


def reap() -> dict[int, int]:
    """Statuses of children that have ended. Never beside user code: it would take the statuses from under it."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def end_all(
    *, grace_s: float, keep: Container[int] = (), meanwhile: Callable[[], None] = lambda: None
) -> tuple[int, dict[int, int]]:
    """This process has no descendants any more, but those in ``keep``: (how many were signalled, their statuses).

    Descendants cannot outrun this: as subreaper we adopt what their dying parents leave, and look again. All are told
    once; what one of them starts to clean up after itself has the rest of the grace.
    """
    statuses = reap()
    signalled = _tell(keep) if grace_s > 0 else set()
    deadline = time.monotonic() + grace_s
    pause = 0.0005
    immune: set[int] = set()  # of another user, as by sudo: nothing that we do ends them
    while True:
        left = [pid for pid in _living(keep) if pid not in immune]
        # Somebody may be adopted between two looks; only when we have no child at all is there nobody to be missed.
        if not left and all(pid in keep or pid in immune for pid in children(os.getpid())):
            break
        signalled.update(left)
        if time.monotonic() >= deadline:
            immune.update(send(left, signal.SIGKILL))
        meanwhile()
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
        statuses |= reap()
    meanwhile()
    return len(signalled), statuses


def _tell(keep: Container[int]) -> set[int]:
    """Everybody has a TERM. Frozen before: who is listed cannot fork any more, so nobody is born unheard.

    The kernel restarts a fork that finds a signal pending, so a child is either in our next list or never was.
    """
    frozen: set[int] = set()
    while fresh := [pid for pid in _living(keep) if pid not in frozen]:
        send(fresh, signal.SIGSTOP)
        frozen.update(fresh)
    send(list(frozen), signal.SIGTERM)
    send(list(frozen), signal.SIGCONT)
    return frozen


def _living(keep: Container[int]) -> list[int]:
    return [pid for pid in descendants(os.getpid(), keep) if start_ticks(pid) is not None]


def marked(prefix: str) -> list[int]:
    """Processes of this user that carry our mark: started by a pool of that database, whoever their parent is now."""
    wanted = f"{MARK}={prefix}".encode()
    found = []
    uid = os.getuid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != uid and uid != 0:
                continue
            if any(part.startswith(wanted) for part in _environ(name).split(b"\0")):
                found.append(int(name))
        except OSError:
            continue
    return found


def _environ(pid: str) -> bytes:
    """Its environment; that of another thread if the first one has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return environ.read()
    except ProcessLookupError:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/environ", "rb") as environ:
                return environ.read()
        return b""


def kill_marked(prefix: str, timeout_s: float = 5.0) -> int:
    """No process carries the mark any more, nor does a descendant of one live; how many were killed.

    A process is signalled only while its start ticks match.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while True:
        found = marked(prefix)
        # Descendants too: a job may have started something with an environment of its own.
        family = dict.fromkeys([*found, *(below for pid in found for below in descendants(pid))])
        left = {pid: ticks for pid in family if (ticks := start_ticks(pid)) is not None}
        if not left or time.monotonic() > deadline:
            return len(killed)
        for pid, ticks in left.items():
            with contextlib.suppress(ProcessLookupError, PermissionError, OSError):
                handle = os.pidfd_open(pid)
                try:
                    if start_ticks(pid) == ticks:
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        killed.add(pid)
                finally:
                    os.close(handle)
        time.sleep(0.005)
