"""How much room a disk has left."""

from __future__ import annotations

import os

FULL = 64 << 10  # bytes: a job and its place in the log need a few pages
LEAST_FREE = 100 << 20  # of a small disk, a twentieth of it


def lacking(place: str) -> tuple[bool, str] | None:
    """(whether it is full, in words) if there is little room left on the disk of that directory."""
    try:
        disk = os.statvfs(place)
    except OSError as error:
        return True, f"cannot be looked at: {error.strerror}"
    free = (disk.f_bavail if os.geteuid() else disk.f_bfree) * disk.f_frsize
    if disk.f_files and not disk.f_favail:
        return True, "is full: it can hold no more files (inodes)"
    if free < FULL:
        return True, "is full"
    if free < min(LEAST_FREE, disk.f_blocks * disk.f_frsize // 20):
        return False, f"is almost full: {free / (1 << 20):.1f} MiB left"
    return None


def is_full(place: str) -> bool:
    lack = lacking(place)
    return lack is not None and lack[0]
