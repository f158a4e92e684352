"""The only room that reads clocks, dice, identity and failpoints from the world."""

from __future__ import annotations

import os
import random
import signal
import socket
import time

rng = random.Random(os.urandom(8))


def now() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


def new_database_id() -> str:
    return os.urandom(8).hex()


def new_secret() -> bytes:
    """32 bytes that nobody can guess."""
    return os.urandom(32)


def hostname() -> str:
    return socket.gethostname()


def boot() -> str:
    """Names the space in which a pid means something: this boot of this machine, this pid namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot_id = file.read().strip()
        return f"{boot_id[:13]}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"{hostname()}:{os.uname().release}"


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot: with the pid, its identity. None if it is gone or a zombie."""
    try:
        return read_ticks(pid)
    except OSError:
        return None


def read_ticks(pid: int) -> int | None:
    """The same, but OSError when it cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A process whose first thread has ended looks like a zombie, while its other threads go on.
    is_gone = fields[0] == b"X" or (fields[0] == b"Z" and int(fields[17]) <= 1)
    return None if is_gone else int(fields[19])


def alive(pid: int, ticks: int) -> bool:
    """True while exactly this process lives; a reused pid has other ticks."""
    return start_ticks(pid) == ticks


def output_mode(path: str) -> int:
    """With which mode a file of output is made: its owner's own, but a group that shares its directory may read it."""
    try:
        return 0o640 if os.stat(os.path.dirname(path)).st_mode & 0o020 else 0o600
    except OSError:
        return 0o600


_armed = dict(part.split("=", 1) for part in os.environ.get("COVEY_FAILPOINTS", "").split(",") if "=" in part)


def arm(name: str, action: str | None) -> None:
    """Tests: what happens at a failpoint from now on (kill, raise, stop, sleep:SECONDS), or nothing."""
    if action is None:
        _armed.pop(name, None)
    else:
        _armed[name] = action


def failpoint(name: str) -> None:
    """Does nothing, unless COVEY_FAILPOINTS armed this name: ``turn.after_commit=kill,enqueue.before_commit=raise``."""
    if _armed and (action := _armed.get(name)):
        _strike(name, action)


def _strike(name: str, action: str) -> None:
    word, _, rest = action.partition(":")
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif word == "sleep":
        time.sleep(float(rest))
    elif word == "raise":
        raise OSError(f"failpoint {name}")
    elif word == "once":  # once:<path>:<action>: the first process to create the file strikes, later ones pass
        path, _, then = rest.partition(":")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        _strike(name, then)
