"""The room that knows the operating system: nobody else names what only one system has."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey
from covey.system import process
from covey.system.calls import calls

ROOT = Path(covey.__file__).parent
# What is not on every Unix. Windows has less still: there mypy looks (`make check`).
LINUX_ONLY = re.compile(
    r"^(eventfd\w*|EFD_\w+|memfd_create|MFD_\w+|pidfd_\w+|pipe2|O_TMPFILE|waitid|P_PIDFD|sched_\w+|[gsl]\w*xattr|prctl|unshare"
    r"|setns|splice|posix_fallocate|fallocate|copy_file_range|SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_CMSG_CLOEXEC"
    r"|CLOCK_BOOTTIME|F_OFD_\w+|F_SETSIG|F_SETPIPE_SZ|epoll|signalfd|timerfd\w*)$"
)
PATHS = re.compile(r"^/(proc|sys|dev/shm)\b")


def offences(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and LINUX_ONLY.match(node.attr):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            if base in ("os", "socket", "signal", "select", "time", "fcntl"):
                yield node.lineno, f"{base}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "socket", "signal", "select", "time"):
            yield from ((node.lineno, each.name) for each in node.names if LINUX_ONLY.match(each.name))
        elif isinstance(node, ast.Constant) and id(node) not in docstrings and PATHS.match(str(node.value)):
            yield node.lineno, str(node.value)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("import os\ndef f():\n    os.eventfd(0)\n", [(3, "os.eventfd")]),
        ("def f(pid):\n    return open(f'/proc/{pid}/stat')\n", [(2, "/proc/")]),
        ("from os import pidfd_open\n", [(1, "pidfd_open")]),
        ("import socket\nKIND = socket.SOCK_SEQPACKET\n", [(2, "socket.SOCK_SEQPACKET")]),
        ('"""/proc has it."""\nimport os\nread, write = os.pipe()\n', []),
    ],
)
def test_the_look_finds_what_is_planted(planted: str, found: list[tuple[int, str]]) -> None:
    assert list(offences(planted)) == found


def test_no_other_room_names_a_call_that_only_linux_has_or_opens_proc() -> None:
    """Modules that only Unix has are import-linter's matter, in `make check`."""
    files = [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT / "system"]
    assert len(files) > 150
    found = [f"{path.relative_to(ROOT)}:{line} {what}" for path in files for line, what in offences(path.read_text())]
    assert found == []


def test_a_signal_goes_to_exactly_that_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ticks = process.start_ticks(child.pid)
        assert ticks is not None
        assert not process.send(child.pid, ticks + 1, signal.SIGKILL)  # its pid was somebody else's
        assert child.poll() is None
        assert process.send(child.pid, ticks, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    assert not process.send(child.pid, ticks, signal.SIGKILL)


def test_a_wake_up_is_one_however_often_it_was_rung() -> None:
    bell = calls.wake_up()
    try:
        for _ in range(3):
            bell.ring()
        bell.drain()
        bell.drain()  # nothing is there, and nobody waits for it
        assert not os.get_inheritable(bell.fileno())
    finally:
        bell.close()


def test_frames_stay_whole_and_each_is_received_once() -> None:
    ours, theirs = calls.framed_pair()
    with ours, theirs:
        ours.send(b"one")
        ours.send(b"another")
        assert (theirs.recv(100), theirs.recv(100)) == (b"one", b"another")


def test_a_file_without_a_name_is_in_no_directory(tmp_path: Path) -> None:
    for directory in (None, str(tmp_path), str(tmp_path / "absent")):
        fd = calls.nameless_file("covey-test", directory)
        os.write(fd, b"there")
        assert (os.pread(fd, 9, 0), os.get_inheritable(fd)) == (b"there", False)
        os.close(fd)
    assert list(tmp_path.iterdir()) == []
