"""Processes and their descendants: found by adoption, ended by TERM, grace, KILL, verified gone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

from ..env import start_ticks

PR_SET_CHILD_SUBREAPER = 36
MARK = "COVEY_RUN"  # <database_id>:<pool>:<job>:<fence>, in the environment of everything a pool starts


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children: nothing escapes by forking twice."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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


def descendants(pid: int) -> list[int]:
    """Everything below a process, parents before children."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


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


def end_all(*, grace_s: float, keep: frozenset[int] = frozenset()) -> tuple[int, dict[int, int]]:
    """This process has no descendants any more, but those in ``keep``: (how many were signalled, their statuses).

    Descendants cannot outrun this: as subreaper we adopt what their dying parents leave, and look again.
    """
    signalled: set[int] = set()
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + grace_s
    pause = 0.0005
    told: set[int] = set()
    while True:
        statuses |= reap()
        left = [pid for pid in descendants(os.getpid()) if pid not in keep and start_ticks(pid) is not None]
        if not left and (is_empty() or keep or not children(os.getpid())):
            return len(signalled), statuses
        signalled.update(left)
        if time.monotonic() >= deadline:
            send(left, signal.SIGKILL)
        elif fresh := [pid for pid in left if pid not in told]:
            send(fresh, signal.SIGTERM)
            send(fresh, signal.SIGCONT)  # a stopped process would not hear the first
            told.update(fresh)
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


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
            with open(f"/proc/{name}/environ", "rb") as environ:
                if any(part.startswith(wanted) for part in environ.read().split(b"\0")):
                    found.append(int(name))
        except OSError:
            continue
    return found


def kill_marked(prefix: str, timeout_s: float = 5.0) -> int:
    """No process carries the mark any more; how many did. A process is signalled only while its start ticks match."""
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while True:
        left = {pid: ticks for pid in marked(prefix) if (ticks := start_ticks(pid)) is not None}
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
