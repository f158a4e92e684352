"""A queue that several users share: what is made beside the database may be used by whoever may write it.

SQLite gives its log the mode of the database. So do we with the directories, the gate and the bells, whatever the
umask of the user who happens to come first.
"""

from __future__ import annotations

import contextlib
import os
import stat

GROUP, OTHERS = 0o020, 0o002  # who else may write the database, or a directory that follows it


def follow(path: str, like: os.stat_result) -> None:
    """``path``, if it is ours, has the group of ``like``, and may be used by the same users."""
    if not like.st_mode & (GROUP | OTHERS):
        return
    with contextlib.suppress(OSError):  # somebody else's: they have seen to it, or only they can
        found = os.stat(path)
        is_directory = stat.S_ISDIR(found.st_mode)
        wanted = (0o2070 if is_directory else 0o060) if like.st_mode & GROUP else 0
        wanted |= (0o007 if is_directory else 0o006) if like.st_mode & OTHERS else 0
        if found.st_gid != like.st_gid:
            os.chown(path, -1, like.st_gid)
        if found.st_mode & wanted != wanted:
            os.chmod(path, stat.S_IMODE(found.st_mode) | wanted)


def barred(path: str) -> str:
    """Which of a database's files this user may not write; the database itself if that cannot be told."""
    for each in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(each) and not os.access(each, os.R_OK | os.W_OK, effective_ids=True):
            return each
    directory = os.path.dirname(path)
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        return f"the directory {directory}"
    return path
