"""Breaking things on purpose: failpoints, child processes that can be killed at any instruction, failing disks."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .. import env

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


def in_fork(work: Callable[[], T]) -> T:
    """What ``work`` answers in a forked child, with all that a fork inherits; its exception is raised here."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            answer: tuple[bool, Any]
            try:
                answer = (True, work())
            except BaseException as error:
                answer = (False, (type(error), str(error), traceback.format_exc()))
            with open(writer, "wb") as pipe:
                pickle.dump(answer, pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    if not data:
        raise AssertionError("the child died without an answer")
    fine, value = pickle.loads(data)
    if not fine:
        kind, text, trace = value
        raise AssertionError(trace) if not issubclass(kind, Exception) else ForkError(kind, text, trace)
    answered: T = value
    return answered


class ForkError(Exception):
    """Something was raised in the child: ``kind`` says what."""

    def __init__(self, kind: type[Exception], text: str, trace: str) -> None:
        super().__init__(text)
        self.kind, self.trace = kind, trace


def strace(*options: str) -> list[str]:
    """The words before a command that make its system calls visible, or fail."""
    found = shutil.which("strace")
    if not found:
        raise AssertionError("strace is needed to make a disk fail")
    return [found, "-f", "-qq", *options]
