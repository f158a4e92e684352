"""The installation and the host: versions, clock, file system."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from ... import env
from .check_result import Finding, bad, ok, warn

MOST_DRIFT_S = 2.0  # more than the way to a server and back


def installation() -> Iterator[Finding]:
    from ... import __version__

    yield ok("covey", f"{__version__} on Python {'.'.join(map(str, sys.version_info[:3]))}")
    if os.environ.get("COVEY_RUN"):
        yield warn("inside a job", "COVEY_RUN is set: this is the view of a job", "name the queue with --db")


def library() -> Iterator[Finding]:
    import apsw

    from ...store.sqlite.database import version_problem

    version = apsw.sqlite_lib_version()
    problem = version_problem(version)
    if problem is None:
        yield ok("sqlite", version)
    else:
        found = bad if problem[0] == "bad" else warn
        yield found("sqlite", problem[1], "pip install --upgrade apsw")


def clock() -> Iterator[Finding]:
    now = time.gmtime(env.now() / 1e6)
    if not 2024 <= now.tm_year < 2100:
        yield bad("clock", f"it is the year {now.tm_year}", "set the clock: run_at and retention go by it")
    else:
        yield ok("clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", now))


def drift(whose: str, theirs: int) -> Finding:
    """Another clock, as it was a moment ago, against ours."""
    ahead_s = (theirs - env.now()) / 1e6
    text = f"{whose} is {abs(ahead_s):.1f} s {'ahead' if ahead_s > 0 else 'behind'}"
    if abs(ahead_s) <= MOST_DRIFT_S:
        return ok("clocks", text)
    return warn("clocks", text, "jobs start by that clock, people read this one: set both by NTP (`timedatectl`)")


def file_system(path: str) -> Iterator[Finding]:
    from ...store.sqlite.database import NETWORK_FILE_SYSTEMS, file_system_of
    from ...store.sqlite.disk_space import lacking

    check, directory = "file system", os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory):
        yield bad(check, f"no directory {directory}", "create it, or name another with --db")
        return
    kind = file_system_of(directory) or "unknown"
    if kind in NETWORK_FILE_SYSTEMS:
        yield bad(check, f"{kind}: several hosts would corrupt the file", "use a local disk, or `covey server`")
        return
    place = os.statvfs(directory)
    left = place.f_bavail * place.f_frsize
    if place.f_flag & os.ST_RDONLY:
        yield bad(check, f"{kind}, mounted for reading only", "mount it for writing")
    elif (lack := lacking(directory)) is not None:
        found = bad if lack[0] else warn
        yield found(check, f"{kind}, {lack[1]}", "free some space; a full disk stops the queue")
    elif kind in ("tmpfs", "ramfs"):
        yield warn(check, f"{kind}: gone after a reboot", "use a disk for jobs that matter")
    else:
        yield ok(check, f"{kind}, {left >> 30} GiB left")
