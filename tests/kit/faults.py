"""Breaking things on purpose: failpoints, child processes that can be killed at any instruction, failing disks."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from covey import env
from covey.testing.until import until

from .lacking import Lacking, need

T = TypeVar("T")


@contextlib.contextmanager
def failpoint(name: str, action: str) -> Iterator[None]:
    """Inside the block the failpoint strikes: raise, kill, stop, sleep:SECONDS."""
    env.arm(name, action)
    try:
        yield
    finally:
        env.arm(name, None)


class Child:
    """A Python process of its own, spoken to in lines. Leaving the block ends it for certain."""

    def __init__(
        self,
        code: str,
        *args: object,
        environ: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        failpoints: Mapping[str, str] | None = None,
    ) -> None:
        armed = ",".join(f"{name}={action}" for name, action in (failpoints or {}).items())
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", code, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COVEY_FAILPOINTS": armed, **(environ or {})},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line it prints, without the end; empty when it has ended."""
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def lines(self) -> Iterator[str]:
        while text := self.line():
            yield text

    def say(self, text: str = "") -> None:
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """It is gone, as after kill -9; its stdout can still be read."""
        self.process.kill()
        self.process.wait()

    def end(self, timeout_s: float = 60) -> tuple[int, str, str]:
        """(exit code, the rest of stdout, stderr) of a child that ends by itself."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Fork:
    """A forked child, with all that a fork inherits. It works until it has an answer, and waits to be asked for more.

    Leaving the block ends it for certain.
    """

    def __init__(self, work: Iterable[object]) -> None:
        self._ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._ours.close()
                _answer(theirs, work)
            finally:
                os._exit(0)
        theirs.close()
        self._replies = self._ours.makefile("rb")

    def ask(self) -> Any:
        """The next thing that it answers. Its exception is raised here; EOFError: it died before it could answer."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._ours.send(b"?")
        try:
            fine, value = pickle.load(self._replies)
        except (EOFError, ConnectionResetError):
            raise EOFError("the child died without an answer") from None
        if fine:
            return value
        kind, text, trace = value
        raise AssertionError(trace) if not issubclass(kind, Exception) else ForkError(kind, text, trace)

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *_: object) -> None:
        self._replies.close()
        self._ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _answer(parent: socket.socket, work: Iterable[object]) -> None:
    answers = iter(work)
    while parent.recv(1):
        reply: tuple[bool, Any]
        try:
            reply = (True, next(answers))
        except BaseException as error:
            reply = (False, (type(error), str(error), traceback.format_exc()))
        parent.sendall(pickle.dumps(reply))


def in_fork(work: Callable[[], T]) -> T:
    """What ``work`` answers in a forked child; its exception is raised here."""
    with Fork(work() for _ in range(1)) as fork:
        answered: T = fork.ask()
    return answered


class ForkError(Exception):
    """Something was raised in the child: ``kind`` says what."""

    def __init__(self, kind: type[Exception], text: str, trace: str) -> None:
        super().__init__(text)
        self.kind, self.trace = kind, trace


def strace(*options: str) -> list[str]:
    """The words before a command that make its system calls visible, or fail."""
    need("strace")
    return ["strace", "-f", "-qq", *options]


class FailingDisk:
    """System calls of a running process on some files fail inside the block; after it its disk works again."""

    def __init__(self, pid: int, paths: Sequence[str], inject: str) -> None:
        named = [word for path in paths for word in ("-P", path)]
        self._command = [*strace("-o", "/dev/null", *named, "-e", f"inject={inject}"), "-p", str(pid)]
        self._pid = pid

    def __enter__(self) -> FailingDisk:
        self._strace = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until(lambda: self._is_traced() or self._strace.poll() is not None, 10, "strace holds the process")
        if self._strace.poll() is not None:
            assert self._strace.stderr
            raise Lacking(f"strace cannot hold another process: {self._strace.stderr.read().strip()}")
        return self

    def _is_traced(self) -> bool:
        """Every thread of it, so that none escapes."""
        threads = Path(f"/proc/{self._pid}/task").iterdir()
        return all(f"TracerPid:\t{self._strace.pid}\n" in (each / "status").read_text() for each in threads)

    def __exit__(self, *_: object) -> None:
        self._strace.terminate()
        self._strace.wait()
        if self._strace.stderr:
            self._strace.stderr.close()


class SmallDisk:
    """A file system of its own in that directory, in memory, with a few MiB."""

    def __init__(self, directory: str, mib: int) -> None:
        self.directory = directory
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "covey-test", directory], capture_output=True, text=True
        )
        if done.returncode:
            raise Lacking(f"no small disk can be mounted: {done.stderr.strip()}")

    def fill(self) -> None:
        """Not a byte is free."""
        with open(os.path.join(self.directory, "filler"), "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        os.unlink(os.path.join(self.directory, "filler"))

    def lock(self) -> None:
        """Mounted for reading only; nobody may have a file open for writing."""
        subprocess.run(["mount", "-o", "remount,ro", self.directory], check=True)

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", self.directory], check=True)
