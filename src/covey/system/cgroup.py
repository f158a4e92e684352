"""Control groups (version 2), where we may make our own: what is in one can be killed at a stroke, whatever it does.

A pool has one for its zygote and everything below; each worker moves into one inside it. Nothing relies on them:
families are found by adoption and by their mark all the same. They catch the rest: whoever forks faster than we look,
and who has shed both its parents and its mark.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from ..env import alive

PREFIX = "covey-"
DELEGATED = ("user.delegate", "trusted.delegate")  # how systemd marks a group that is its service's own


def name(database_id: str, pid: int, ticks: int) -> str:
    """What the group of a pool is called."""
    return f"{PREFIX}{database_id}-{pid}-{ticks}"


def create(name: str) -> str | None:
    """A new group inside ours; None where that is not ours to do. COVEY_CGROUP=off does without."""
    if os.environ.get("COVEY_CGROUP", "").lower() in ("off", "0", "no"):
        return None
    home = _home()
    if home is None:
        return None
    path = os.path.join(home, name)
    try:
        os.mkdir(path)
        if os.access(os.path.join(path, "cgroup.kill"), os.W_OK):
            return path
        os.rmdir(path)  # a kernel before 5.14
    except OSError:
        pass
    return None


def enter(path: str, *others: int) -> None:
    """This process, and what it starts from now on, is in the group, and so are those. Without it, it works as well."""
    for pid in (0, *others):
        with contextlib.suppress(OSError):
            os.makedirs(path, exist_ok=True)
            _write(path, "cgroup.procs", str(pid))


def end(path: str, timeout_s: float = 1.0) -> None:
    """Nobody lives in the group any more, and it is gone."""
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        _write(path, "cgroup.kill", "1")
    while os.path.isdir(path) and not _remove(path) and time.monotonic() < deadline:
        time.sleep(0.001)


def left(database_id: str) -> list[str]:
    """Groups of this queue's pools that are gone, with nobody inside, wherever they are."""
    name = re.compile(rf"{PREFIX}{re.escape(database_id)}-(\d+)-(\d+)")
    found: list[str] = []
    for point in _mounted():
        for home, below, _ in os.walk(point):
            for each in [match for entry in below if (match := name.fullmatch(entry))]:
                below.remove(each[0])  # its workers' are inside
                path = os.path.join(home, each[0])
                if not alive(int(each[1]), int(each[2])) and not _is_populated(path):
                    found.append(path)
    return found


def _is_populated(path: str) -> bool:
    """Whether anybody is in it, or below; a pool of another pid namespace looks dead to us, but it is there."""
    try:
        with open(os.path.join(path, "cgroup.events")) as file:
            return "populated 1" in file.read()
    except OSError:
        return False


def _mounted() -> list[str]:
    """Where control groups (version 2) are to be seen."""
    try:
        with open("/proc/self/mountinfo") as file:
            return [line.split()[4] for line in file if " - cgroup2 " in line]
    except OSError:
        return []


def _remove(path: str) -> bool:
    """True once it is gone, and those inside it."""
    try:
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(path: str, name: str, text: str) -> None:
    with open(os.path.join(path, name), "w") as file:
        file.write(text)


def _home() -> str | None:
    """The directory of the group that we are in, if it was given to us."""
    try:
        with open("/proc/self/cgroup") as file:
            mine = next(line.rstrip("\n")[3:] for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
    except (OSError, StopIteration):
        return None
    for fields in mounts:
        root, point = fields[3], fields[4]
        if root != "/":  # a part of the tree that /proc/self/cgroup does not speak of
            continue
        home = point + mine.rstrip("/")
        if os.access(home, os.W_OK) and _is_ours(home, mine):
            return home
    return None


def _is_ours(home: str, mine: str) -> bool:
    """The top of a container's tree is; so is what its manager has marked, or what we may write without being root."""
    if mine == "/" or os.getuid() != 0:
        return True
    for name in DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(home, name) == b"1":
                return True
    return False


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def memory_events() -> str | None:
    """The file that counts who was killed in our group for lack of memory; a container sees its own. None without."""
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - cgroup" in line]
    except OSError:
        return None
    for number, controllers, mine in groups:
        version = "cgroup2" if number == "0" and not controllers else "cgroup"
        if version == "cgroup" and "memory" not in controllers.split(","):
            continue
        name = "memory.events" if version == "cgroup2" else "memory.oom_control"
        for fields in mounts:
            root, point, kind, options = fields[3], fields[4], *fields[fields.index("-") + 1 :: 2]
            if kind != version or (version == "cgroup" and "memory" not in options.split(",")):
                continue
            # A container may have been shown only its own part of the tree.
            below = mine.removeprefix(root.rstrip("/")) if mine.startswith(root) else ""
            path = os.path.join(point, below.strip("/"), name)
            if os.access(path, os.R_OK):
                return path
    return None


def killed_for_memory(path: str) -> int:
    """How many processes the kernel has killed there so far."""
    try:
        with open(path) as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError):
        return 0
