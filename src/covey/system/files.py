"""What the system shows of open files and of mounts. Where it shows nothing, what is asked for cannot be had."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from typing import NamedTuple

from .calls import way

LONGEST_SOCKET_PATH = 103  # bytes, on a Mac
MOUNTS = "/proc/self/mounts"
PUNCH_HOLE_KEEP_SIZE = 3


def reopen_for_writing(fd: int) -> int:
    """The same pipe or terminal, opened once more without waiting; OSError where that cannot be."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "cannot be opened again")
    return os.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)


def short_path(directory: int, path: str, name: str) -> str:
    """A path to what is in an open directory, short enough for a socket however long the directory's own is.

    Elsewhere than on Linux through a link, if it must be; OSError if somebody else has put another one there.
    """
    if way() == "linux":
        return f"/proc/self/fd/{directory}/{name}"
    if len(os.fsencode(os.path.join(path, name))) <= LONGEST_SOCKET_PATH:
        return os.path.join(path, name)
    link = _link(directory)
    with contextlib.suppress(FileExistsError):
        os.symlink(os.path.realpath(path), link)
    if not os.path.samestat(os.stat(link), os.fstat(directory)):
        raise OSError(errno.EEXIST, "leads elsewhere", link)
    return f"{link}/{name}"


def forget_short_path(directory: int) -> None:
    """No link to that directory is left; whoever needs it makes it anew."""
    if way() != "linux":
        with contextlib.suppress(OSError):
            os.unlink(_link(directory))


def _link(directory: int) -> str:
    found = os.fstat(directory)
    return f"/tmp/covey-{found.st_dev:x}-{found.st_ino:x}"


# Of a file that jobs may have put something else in the place of: a link would lead elsewhere, a pipe make us wait.
if sys.platform == "win32":
    PLAIN = os.O_BINARY
else:
    PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def open_plain(path: str, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a plain file; OSError for anything else that stands there."""
    fd = os.open(path, flags | PLAIN, mode)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a plain file", path)


class Disk(NamedTuple):
    """Bytes, and whether there is room for one more file."""

    size: int
    free: int
    takes_files: bool
    read_only: bool


def disk(path: str) -> Disk:
    """The disk that a directory is on; OSError if it cannot be looked at."""
    if sys.platform == "win32":
        import shutil

        usage = shutil.disk_usage(path)
        return Disk(usage.total, usage.free, True, False)
    found = os.statvfs(path)
    free = (found.f_bavail if os.geteuid() else found.f_bfree) * found.f_frsize
    full = bool(found.f_files and not found.f_favail)
    return Disk(found.f_blocks * found.f_frsize, free, not full, bool(found.f_flag & os.ST_RDONLY))


def open_files() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/dev/fd"))


def unread(socket: int) -> int:
    """Bytes that were sent and have not arrived, as far as the system knows."""
    if sys.platform != "linux":
        return 0
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def hollow_out(pid: int, stream: int, places: tuple[str, ...], most: int, keep: int) -> None:
    """If that stream of a process is a file in one of these places, and takes more of the disk than that: its middle,
    all but so many bytes at either end, becomes a hole."""
    if sys.platform != "linux":
        return
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
