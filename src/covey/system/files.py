"""What the system shows of open files and of mounts. Where it shows nothing, what is asked for cannot be had."""

from __future__ import annotations

import contextlib
import os
import re
import sys

MOUNTS = "/proc/self/mounts"
PUNCH_HOLE_KEEP_SIZE = 3


def reopen(fd: int, flags: int) -> int:
    """The same file, pipe or terminal, opened once more by this process; OSError where that cannot be."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_NOCTTY)


def short_path(directory: int, name: str) -> str:
    """A path to what is in an open directory, short enough for a socket however long the directory's own is."""
    return f"/proc/self/fd/{directory}/{name}"


def open_files() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


def unread(socket: int) -> int:
    """Bytes that were sent and have not arrived, as far as the system knows."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def hollow_out(pid: int, stream: int, places: tuple[str, ...], most: int, keep: int) -> None:
    """If that stream of a process is a file in one of these places, and takes more of the disk than that: its middle,
    all but so many bytes at either end, becomes a hole."""
    import ctypes

    path = f"/proc/{pid}/fd/{stream}"
    with contextlib.suppress(OSError):
        if not os.readlink(path).startswith(places):
            return
        fd = os.open(path, os.O_WRONLY)
        try:
            found = os.fstat(fd)
            if found.st_blocks * 512 > most:
                offset, length = ctypes.c_longlong(keep), ctypes.c_longlong(found.st_size - 2 * keep)
                ctypes.CDLL(None).fallocate(fd, PUNCH_HOLE_KEEP_SIZE, offset, length)
        finally:
            os.close(fd)


def file_system_of(path: str) -> str | None:
    """The type of the file system that holds ``path``, or None where that cannot be told."""
    best, kind = "", None
    real = os.path.realpath(path)
    try:
        with open(MOUNTS) as table:
            for line in table:
                _, mount, found, *_ = (*line.split(), "", "", "")
                mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount)
                if mount and (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
                    best, kind = mount, found
    except OSError:
        return None
    return kind
