"""Runs commands, one at a time: own session, no standard input, output captured, the whole family ended with it."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Container
from typing import Any

from ..core.codec import decode, printable
from ..core.model import Output, Report
from ..system import process_tree
from . import spawn_file
from .messages import RunJob
from .output import Capture, join, live_path
from .pool_link import PoolLink, base_environment, job_environment, report

LEFTOVER_GRACE_S = 1.0  # for what a command leaves behind when its main process has ended
MOST_DRAINS = 128  # pipes of what is kept in the background: the eldest beyond are closed, or no command could start
DEFAULT_SIGNALS = [
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCHLD,
]


class CommandWorker:
    def __init__(self, link: PoolLink, mark: str) -> None:
        self._link = link
        self._mark = mark
        self._environment = base_environment()
        self._home = os.getcwd()
        self._kept: frozenset[int] = frozenset()
        self._drains: list[int] = []  # what is kept writes there; whoever wants it has sent it elsewhere
        self._null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._bell, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGTERM, lambda *_: None)  # means something only beside a serial in the slot
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        process_tree.become_subreaper()

    def serve(self) -> None:
        """Returns when the pool has hung up."""
        self._link.ready()
        while (job := self._receive()) is not None:
            started_at = self._link.begin(0, job.serial)
            self._link.end(0, job.serial, self._run(job, started_at))

    def _receive(self) -> RunJob | None:
        """The next job. Whoever was kept in the background and writes is not held up meanwhile."""
        while self._drains:
            poll = select.poll()
            for fd in (self._link.jobs.fileno(), *self._drains):
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            self._drain(ready)
            if self._link.jobs.fileno() in ready:
                with contextlib.suppress(BlockingIOError):  # the pool was faster and took it back
                    return self._link.receive_now()
        return self._link.receive()

    def _drain(self, ready: Container[int]) -> None:
        """What was written there is read and thrown away: a closed pipe would kill the writer, a full one hold it."""
        for fd in [fd for fd in self._drains if fd in ready]:
            with contextlib.suppress(BlockingIOError):
                if not os.read(fd, 1 << 16):
                    self._drains.remove(fd)
                    os.close(fd)

    # ── one command ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, job: RunJob, started_at: int) -> Report:
        """What became of the command, and what it asked for if it succeeded."""
        claim = job.claim
        spawn_path = spawn_file.create(self._link.live, claim)
        try:
            told = self._run_command(job, started_at, spawn_path)
            if told.outcome == "success" and spawn_path is not None:
                spawn_file.set_spawned(told, spawn_path, claim, self._link.settings)
            elif told.outcome == "failure" and spawn_path is not None:
                spawn_file.set_refused(told, spawn_path)
        finally:
            spawn_file.remove(spawn_path)
        return told

    def _run_command(self, job: RunJob, started_at: int, spawn_path: str | None) -> Report:
        """What became of the command. Never raises for anything that a job can be at fault for."""
        claim = job.claim
        out = Capture(live_path(self._link.live, claim.id, claim.fence, "out"))
        err = Capture(live_path(self._link.live, claim.id, claim.fence, "err"))
        try:
            pid, readers = self._spawn(job, spawn_path)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            told = report(job, "failure", started_at)
            told.exit_code, told.error = _spawn_problem(error, claim.cwd)
            return told
        stopped, status = self._follow(pid, readers, out, err, job.serial)
        if not stopped and status is not None:
            self._end_leftovers(claim.keep_background, err)
        for reader, capture in zip(readers, (out, err), strict=True):
            if _drain(reader, capture) and claim.keep_background:
                self._drains.append(reader)
            else:
                os.close(reader)
        while len(self._drains) > MOST_DRAINS:
            os.close(self._drains.pop(0))
        return _judge(job, started_at, status, stopped, join(out, err))

    def _spawn(self, job: RunJob, spawn_path: str | None) -> tuple[int, tuple[int, int]]:
        claim = job.claim
        asked: dict[str, Any] = decode(claim.args or "{}")
        argv = asked.get("argv") or ["/bin/sh", "-c", asked["command"]]
        env = job_environment(self._environment, self._mark, job) | asked.get("env", {})
        if spawn_path is not None:
            env["COVEY_SPAWN"] = spawn_path
        os.chdir(claim.cwd or self._home)
        if self._kept:  # what is there before the command begins belongs to those that are kept, whoever its parent is
            self._kept = frozenset(process_tree.descendants(os.getpid()))
        out_reader, out_writer = os.pipe2(os.O_CLOEXEC)
        err_reader, err_writer = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.posix_spawn(
                _executable(argv[0], env),
                argv,
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, self._null, 0),
                    (os.POSIX_SPAWN_DUP2, out_writer, 1),
                    (os.POSIX_SPAWN_DUP2, err_writer, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=DEFAULT_SIGNALS,
            )
        except BaseException:
            os.close(out_reader)
            os.close(err_reader)
            raise
        finally:
            os.close(out_writer)
            os.close(err_writer)
        os.set_blocking(out_reader, False)
        os.set_blocking(err_reader, False)
        return pid, (out_reader, err_reader)

    def _follow(
        self, pid: int, readers: tuple[int, int], out: Capture, err: Capture, serial: int
    ) -> tuple[bool, int | None]:
        """(was it stopped, wait status of the main process). Ends when that process does, whoever keeps the pipes."""
        handle = os.pidfd_open(pid)
        poll = select.poll()
        captures = dict(zip(readers, (out, err), strict=True))
        for fd in (*readers, handle, self._bell, *self._drains):
            poll.register(fd, select.POLLIN)
        poll.register(self._link.reports, 0)  # hang-up: the pool is gone
        try:
            while True:
                for fd, event in poll.poll():
                    if fd in captures:
                        if not _take(fd, captures[fd]):
                            poll.unregister(fd)
                    elif fd == self._bell:
                        _empty(self._bell)
                        if self._link.slot.asked_to_stop(0) == serial:
                            return True, self._stop(pid, captures)
                    elif fd in self._drains:
                        self._drain((fd,))
                        if fd not in self._drains:
                            poll.unregister(fd)
                    elif fd == handle:
                        return False, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    elif event & (select.POLLHUP | select.POLLERR):
                        process_tree.end_all(grace_s=0.2)
                        os._exit(0)
        finally:
            os.close(handle)

    def _stop(self, pid: int, captures: dict[int, Capture]) -> int | None:
        """TERM, grace, KILL, verified gone. The pipes are read meanwhile: a full one would keep its writer."""

        def listen() -> None:
            for fd, capture in captures.items():
                _drain(fd, capture)
            self._drain(self._drains)

        grace_s = self._link.slot.grace_s(0)
        _, statuses = process_tree.end_all(grace_s=grace_s, keep=self._kept, meanwhile=listen)
        return os.waitstatus_to_exitcode(statuses[pid]) if pid in statuses else None

    def _end_leftovers(self, keep_background: int, err: Capture) -> None:
        """What the main process left running is ended too, unless the job asked otherwise."""
        if process_tree.is_empty():
            return
        if keep_background:
            self._kept = frozenset(process_tree.descendants(os.getpid()))
            return
        ended, _ = process_tree.end_all(grace_s=LEFTOVER_GRACE_S, keep=self._kept)
        if ended:
            err.write(f"[covey: ended {ended} processes that the command left behind]\n".encode())


def _executable(name: str, env: dict[str, str]) -> str:
    """The file to run, by the job's own PATH."""
    if "/" in name:
        return name
    denied = False
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            denied = True
    code = errno.EACCES if denied else errno.ENOENT
    raise OSError(code, os.strerror(code), name)


def _spawn_problem(error: Exception, cwd: str | None) -> tuple[int, str]:
    """(exit code as a shell would give it, reason)."""
    if not isinstance(error, OSError):
        return 126, f"this is no command that can be run: {error}"
    name = error.filename
    if name is not None and cwd is not None and os.fspath(name) == cwd:
        return 126, f"cannot enter the directory {cwd}: {error.strerror}"
    match error.errno:
        case errno.ENOENT:
            return 127, f"command not found: {name}"
        case errno.EACCES:
            return 126, f"not executable: {name}"
        case errno.E2BIG:
            return 126, "the arguments and the environment are too long for this system"
        case errno.ENOEXEC:
            return 126, f"not a program (no #! line?): {name}"
        case _:
            return 126, f"cannot start {name}: {error.strerror}"


def _judge(job: RunJob, started_at: int, status: int | None, stopped: bool, output: Output | None) -> Report:
    told = report(job, "success" if status == 0 and not stopped else "failure", started_at, output)
    if stopped:
        told.outcome = "stopped"
    if status is not None:
        told.exit_code = status if status >= 0 else 128 - status
        if status < 0:
            told.error = f"killed by signal {-status} ({_signal_name(-status)})"
        elif status > 0:
            told.error = f"exit code {status}"
            if hint := _last_line(output):
                told.error += f": {hint}"
    return told


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _last_line(output: Output | None) -> str:
    """The last thing that was said on standard error: usually the reason."""
    if output is None or not output.stderr.strip():
        return ""
    return printable(output.stderr.strip().splitlines()[-1][-200:])


def _take(fd: int, capture: Capture) -> bool:
    """Reads once; False at the end of the stream."""
    try:
        data = os.read(fd, 1 << 16)
    except BlockingIOError:
        return True
    capture.write(data)
    return bool(data)


def _drain(fd: int, capture: Capture) -> bool:
    """What lies in the pipe now. A writer that is still alive is not waited for; whether there is one."""
    deadline = time.monotonic() + 1.0
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, 1 << 16):
            capture.write(data)
            if time.monotonic() >= deadline:
                return True
        return False
    return True


def _empty(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 512):
            pass
