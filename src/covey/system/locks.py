"""Locks on bytes of a file: a process's own, not inherited by a forked child, gone with it; the holder is named."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
import time

if sys.platform == "win32":
    import msvcrt

    def lock(fd: int, byte: int) -> None:
        """This process has the byte, however long that takes."""
        pause_s = 0.001
        while not try_lock(fd, byte, 1):
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)

    def try_lock(fd: int, byte: int, count: int) -> bool:
        """This process has these bytes; False if somebody else has one of them."""
        for each in range(byte, byte + count):
            try:
                os.lseek(fd, each, os.SEEK_SET)
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            except OSError:
                unlock(fd, byte, each - byte)
                return False
        return True

    def unlock(fd: int, byte: int, count: int) -> None:
        """None of these bytes is ours; those that were not already are no fault."""
        for each in range(byte, byte + count):  # only what was locked at once can be unlocked at once
            with contextlib.suppress(OSError):
                os.lseek(fd, each, os.SEEK_SET)
                msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    def holder(fd: int, byte: int) -> int | None:
        """Windows does not tell."""
        return None

else:
    import fcntl

    _FLOCK = "hhqqi4x" if sys.platform == "linux" else "qqihh"

    def lock(fd: int, byte: int) -> None:
        """This process has the byte, however long that takes."""
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX, 1, byte)
                return
            except OSError as error:
                # The kernel counts locks by process: two processes that each use two files look like a deadlock to it.
                if error.errno != errno.EDEADLK:
                    raise
                time.sleep(0.002)

    def try_lock(fd: int, byte: int, count: int) -> bool:
        """This process has these bytes; False if somebody else has one of them."""
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, count, byte)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def unlock(fd: int, byte: int, count: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, count, byte)

    def holder(fd: int, byte: int) -> int | None:
        """The pid that has the byte, if it is another process."""
        if sys.platform == "linux":
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        else:
            asked = struct.pack(_FLOCK, byte, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else int(pid)
