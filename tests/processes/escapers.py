"""A zoo of escapers: jobs whose processes try, each in its own way, to outlive them.

Every process of an animal can be told from outside, without a word from Covey: it holds descriptor 9 on the animal's
marker file, which its descendants inherit, or it has the marker's path among its arguments. `holders` looks for both.
An animal writes `up` into its marker once it is complete. On its second run it only tells who is left of the first.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from covey import Covey

app = Covey()

MARK_FD = 9  # the highest that every shell can name


def holders(marker: str) -> list[int]:
    """Living processes that belong to the animal. A zombie has no descriptors and no arguments any more."""
    return everybody([marker])[marker]


def everybody(markers: list[str]) -> dict[str, list[int]]:
    """The same for many animals, in one walk through /proc."""
    found: dict[str, list[int]] = {marker: [] for marker in markers}
    for name in os.listdir("/proc"):
        if name.isdigit():
            for marker in _belongs_to(name) & found.keys():
                found[marker].append(int(name))
    return found


def _belongs_to(pid: str) -> set[str]:
    """Everything that it could be known by: its arguments, and the files that it has open."""
    known: set[str] = set()
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            known.update(os.fsdecode(cmdline.read()).split("\0"))
        for fd in os.listdir(f"/proc/{pid}/fd"):
            known.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        pass  # it has just ended, or closed one of them: the next look is soon
    return known


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Animal:
    """``$1`` is the marker, ``$2`` the file that lets the main process end, ``$3`` how many bytes are much."""

    name: str
    script: str = ""  # of a command; else the name is that of a task below
    kind: Any = "command"
    ups: int = 1  # how many of its processes say that they are up
    can_end: bool = True  # its main process ends by itself when it may
    chase_s: float = 0.0  # how much longer it may take to be caught

    def words(self, *given: object) -> list[str]:
        return ["/bin/sh", "-c", f"{_AGAIN}\n{self.script}", self.name, *map(str, given)]


_AGAIN = """
if test -s "$1"; then
    for fd in /proc/[0-9]*/fd/9; do test "$fd" -ef "$1" && echo "$fd"; done
    grep -lsxzF -f - /proc/[0-9]*/cmdline >"$1.args" <<MARKER
$1
MARKER
    grep -v "/proc/$$/" "$1.args"
    exit 0
fi
end() { until test -e "$2"; do sleep 0.2; done; date +%s.%N >"$1.ended"; exit 0; }
"""

_HERE = 'exec 9>>"$1"'
_END = 'end "$@"'
_PYTHON = f"{sys.executable} -IS -c"

_RENAMED = """
import os, time
if os.fork():
    os.execv("/bin/sh", ["[kworker/0:1]", "-c", "echo up >&9; sleep 1000; true"])
with open("/proc/self/comm", "w") as comm:
    comm.write("[kworker/0:2]")
os.write(9, b"up\\n")
time.sleep(1000)
"""

# A new process every 20 ms, and none of them lives longer: who looks and then strikes may come too late. As one could
# miss it in /proc too, each writes into the marker.
_RUNNER = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(9, b"up\\n")
over = time.monotonic() + 60
while time.monotonic() < over:
    if os.fork():
        os._exit(0)
    os.write(9, b".")
    time.sleep(0.02)
"""

# Nothing of it is left but its arguments: no descriptor, no session, no parent, no directory of the job.
_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.write(9, b"up\\n")
    os.closerange(0, 100)
    time.sleep(1000)
"""

COMMANDS = [
    Animal("background", f"{_HERE}; sleep 1000 & echo up >&9; {_END}"),
    Animal("double-fork", f"{_HERE}; (sh -c 'echo up >&9; sleep 1000; true' &); {_END}"),
    Animal("setsid", f"{_HERE}; setsid sh -c 'echo up >&9; sleep 1000; true' & {_END}"),
    Animal("nohup", f"{_HERE}; nohup sh -c 'echo up >&9; sleep 1000; true' >/dev/null 2>&1 & {_END}"),
    Animal("deaf-tree", f"""
        trap '' TERM HUP INT; {_HERE}
        sh -c 'sh -c "echo up >&9; while :; do sleep 0.3; done" & while :; do sleep 0.3; done' &
        {_END}"""),
    Animal("answers-term-with-more", f"""
        {_HERE}
        sh -c 'trap "setsid sleep 1000 & setsid sleep 1000 &" TERM; echo up >&9; while :; do sleep 0.3; done' &
        {_END}"""),
    Animal("stopped-child", f"{_HERE}; sh -c 'echo up >&9; kill -STOP $$; sleep 1000' & {_END}"),
    Animal("stopped-itself", f"{_HERE}; sleep 1000 & echo up >&9; kill -STOP $$; {_END}", can_end=False),
    Animal("crowd-of-200", f"""
        {_HERE}
        n=0; while test $n -lt 200; do sleep 1000 & n=$((n + 1)); done
        echo up >&9; {_END}"""),
    Animal("closed-streams", f"{_HERE}; exec <&- >&- 2>&-; sh -c 'echo up >&9; sleep 1000; true' & {_END}"),
    Animal("keeps-stdout", f"""
        {_HERE}
        sh -c 'trap "" TERM; echo up >&9; while :; do echo more; sleep 0.2; done' &
        {_END}"""),
    Animal("renamed", f"{_HERE}; {_PYTHON} '{_RENAMED}' & {_END}", ups=2),
    Animal("exec", f"""
        {_HERE}
        exec env sh -c '
            sleep 1000 & echo up >&9
            until test -e "$2"; do sleep 0.2; done; date +%s.%N >"$1.ended"' "$0" "$@"
        """),
    Animal("writes-much", f"""
        {_HERE}; echo up >&9
        head -c "$3" /dev/zero | tr '\\0' '\\n'
        while :; do head -c 100000 /dev/zero; sleep 0.05; done &
        {_END}"""),
    Animal("runs-away", f"{_HERE}; {_PYTHON} '{_RUNNER}' & {_END}", chase_s=8.0),
    Animal("daemon", f"{_HERE}; {_PYTHON} '{_DAEMON}' \"$1\"; {_END}"),
    Animal("empty-environment", f"""
        {_HERE}
        exec env -i PATH="$PATH" sh -c '
            (setsid sh -c "echo up >&9; sleep 1000; true" &)
            until test -e "$2"; do sleep 0.2; done; date +%s.%N >"$1.ended"' "$0" "$@"
        """),
]  # fmt: skip


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

CHILD = ["sh", "-c", 'exec 9>>"$0"; echo up >&9; sleep 1000; true']
DEAF_CHILD = ["sh", "-c", 'trap "" TERM; exec 9>>"$0"; echo up >&9; while :; do sleep 0.3; done']


def wait_for(go: str) -> None:
    while not os.path.exists(go):
        time.sleep(0.1)


def is_second_run(marker: str) -> bool:
    return os.path.exists(marker) and os.path.getsize(marker) > 0


@app.task
def python_child(marker: str, go: str) -> list[int]:
    if is_second_run(marker):
        return holders(marker)
    subprocess.Popen([*CHILD, marker], start_new_session=True)
    wait_for(go)
    return []


@app.task
def python_double_fork(marker: str, go: str) -> list[int]:
    """The grandchild is a copy of the worker itself, with everything that it had open."""
    if is_second_run(marker):
        return holders(marker)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for fd in (0, 1, 2):
            os.close(fd)
        os.write(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), b"up\n")
        time.sleep(1000)
        os._exit(0)
    os.wait()
    wait_for(go)
    return []


@app.task
def python_deaf(marker: str, go: str) -> list[int]:
    """Catches what it should let pass; so does its child."""
    if is_second_run(marker):
        return holders(marker)
    subprocess.Popen([*DEAF_CHILD, marker])
    while not os.path.exists(go):
        try:
            wait_for(go)
        except BaseException:
            continue
    return []


@app.task
def python_turns_its_stop_into_an_error(marker: str, go: str) -> list[int]:
    if is_second_run(marker):
        return holders(marker)
    subprocess.Popen([*CHILD, marker])
    try:
        wait_for(go)
    except BaseException as error:
        raise RuntimeError("wrapped") from error
    return []


@app.task
def python_holds_the_gil(marker: str, go: str, seconds: float) -> list[int]:
    """Waits in the kernel for a lock that nobody lets go, with the interpreter locked: no signal gets it out of there.

    Unlike a sleep, which a signal cuts short, a lock is waited for again.
    """
    if is_second_run(marker):
        return holders(marker)
    held = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(held, b"up\n")
    mutex = ctypes.create_string_buffer(64)
    at = (ctypes.c_long * 2)(int(time.time() + seconds), 0)
    locked = ctypes.PyDLL(None)
    locked.pthread_mutex_lock(mutex)
    locked.pthread_mutex_timedlock(mutex, at)
    wait_for(go)
    os.close(held)
    return []


@app.task
async def python_async_child(marker: str, go: str) -> list[int]:
    if is_second_run(marker):
        return holders(marker)
    subprocess.Popen([*DEAF_CHILD, marker], start_new_session=True)
    while not os.path.exists(go):
        await asyncio.sleep(0.1)
    return []


TASKS = [
    Animal("python-child", kind="sync"),
    Animal("python-double-fork", kind="sync"),
    Animal("python-deaf", kind="sync"),
    Animal("python-turns-its-stop-into-an-error", kind="sync"),
    Animal("python-holds-the-gil", kind="sync"),
    Animal("python-async-child", kind="async"),
]
