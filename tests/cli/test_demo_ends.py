"""Whatever ends `covey demo`, its pool ends with it."""

from __future__ import annotations

import signal
import subprocess

import psutil
import pytest

from .conftest import CommandLine, until


def pools_of(pid: int) -> list[int]:
    """Its child, not what that one is about to start, which has the same words until then."""
    found = []
    for process in psutil.process_iter(["cmdline", "ppid"]):
        words = process.info["cmdline"] or []
        if "--parent-pid" in words and words[words.index("--parent-pid") + 1] == str(pid):
            found.append(process)
    return [process.pid for process in found if process.info["ppid"] == pid]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_demo_that_is_ended_leaves_no_process(covey: CommandLine, number: int, code: int) -> None:
    temp = covey.directory / "temp"
    temp.mkdir()
    covey.env["TMPDIR"] = str(temp)
    demo = covey.popen("demo", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: pools_of(demo.pid), 30)
    (pool,) = pools_of(demo.pid)
    below = until_children(pool)
    demo.send_signal(number)
    assert demo.wait(50) == code
    until(lambda: not any(psutil.pid_exists(pid) for pid in (pool, *below)), 40)
    if number != signal.SIGKILL:
        assert list(temp.iterdir()) == []


def until_children(pool: int) -> list[int]:
    until(lambda: psutil.Process(pool).children(recursive=True), 30)
    return [process.pid for process in psutil.Process(pool).children(recursive=True)]
