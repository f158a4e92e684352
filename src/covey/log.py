"""What Covey says while it works. All wording is here; it goes to standard error and to the pool's log file."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from datetime import UTC, datetime

from .core.codec import decode
from .core.label import parts
from .core.model import SHELL, Claim, Report
from .core.specs import command_line

LONGEST = 80  # characters of a command
LEVELS = ("debug", "info", "warning", "error")
MOST_BYTES = 5 << 20  # then a log file is put aside
KEPT = 3  # files, the current one included


def _what(claim: Claim) -> str:
    """What `list` shows of a job: its key, its command or task. Never arguments or variables."""
    text = claim.task
    if claim.task == SHELL and claim.args:
        text = command_line(decode(claim.args)) or text
    return _short(f"{claim.key}: {text}" if claim.key else text, LONGEST)


def _how(report: Report) -> str:
    how = {"taken_back": "it was not started and goes back", "gone": "cancelled"}.get(report.outcome, report.outcome)
    return f"{how}: {_short(report.error, 200)}" if report.error else how


def _short(text: str, most: int) -> str:
    """One line, and not a long one."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


class LogFile:
    """A file that several processes append to, each line in one piece. A full one becomes NAME.1, that one NAME.2."""

    def __init__(self, path: str, *, most_bytes: int = MOST_BYTES) -> None:
        self.path, self._most_bytes = path, most_bytes
        self._lock = threading.Lock()
        self.fd = self._open()

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, line: str) -> None:
        """A disk that is full or gone must not stop a pool: then the line is only on standard error."""
        with self._lock, contextlib.suppress(OSError):
            os.write(self.fd, line.encode("utf-8", "backslashreplace"))
            if os.fstat(self.fd).st_size >= self._most_bytes:
                self._put_aside()

    def _put_aside(self) -> None:
        """In the place of the same descriptor, so that whoever is started from now on inherits the new file."""
        if self._is_current():  # else another process has done so
            for number in range(KEPT - 1, 0, -1):
                older = f"{self.path}.{number - 1}" if number > 1 else self.path
                with contextlib.suppress(FileNotFoundError):
                    os.replace(older, f"{self.path}.{number}")
        fresh = self._open()
        os.dup2(fresh, self.fd, inheritable=False)
        os.close(fresh)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.fd))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        os.close(self.fd)


class Log:
    """Lines with a time and a name. A line that repeats is said at most once in ten seconds.

    COVEY_LOG says from which level on; --quiet keeps standard error to warnings, the file has the rest all the same.
    """

    def __init__(self, name: str, *, quiet: bool = False, file: LogFile | None = None) -> None:
        self._name, self.file = name, file
        wanted = os.environ.get("COVEY_LOG", "info").lower()
        self._least = LEVELS.index(wanted) if wanted in LEVELS else 1
        self._least_aloud = max(self._least, LEVELS.index("warning")) if quiet else self._least
        self._said: dict[str, float] = {}
        self.tells_jobs = self._least == 0  # asked once: what nobody reads is not put into words

    @property
    def path(self) -> str | None:
        """Where to read on."""
        return self.file.path if self.file else None

    def _say(self, level: str, text: str) -> None:
        rank = LEVELS.index(level)
        if rank < self._least:
            return
        now = datetime.now(UTC)
        if self.file:
            self.file.write(f"{now.isoformat(timespec='milliseconds')[:-6]}Z {level} {self._name} {text}\n")
        if rank < self._least_aloud:
            return
        try:
            sys.stderr.write(f"{now.strftime('%H:%M:%S.%f')[:-3]} {self._name} {text}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # nobody listens any more

    def _seldom(self, key: str, level: str, text: str) -> None:
        now = time.monotonic()
        if now - self._said.get(key, -10.0) >= 10.0:
            self._said[key] = now
            self._say(level, text)

    # ── pools ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def started(self, pool: int, pid: int, where: str) -> None:
        self._say("info", f"pool {pool} (pid {pid}) works on {where}")

    def worker_started(self, name: str, ready: int, wanted: int) -> None:
        self._say("info", f"✓ started {name} ({ready}/{wanted})")

    def all_started(self, ready: int, wanted: int, seconds: float, failed: list[str]) -> None:
        more = f" and {len(failed) - 8} more" if len(failed) > 8 else ""
        tail = f"; failed: {', '.join(failed[:8])}{more}" if failed else ""
        where = f"; log: {self.path}" if failed and self.path else ""
        level = "info" if not failed else "warning" if ready else "error"
        self._say(level, f"started {ready}/{wanted} workers in {seconds:.1f}s{tail}{where}")

    def few_files(self, limit: int, asked: int, fit: int, jobs: int) -> None:
        self._say(
            "warning",
            f"the limit of {limit} open files allows for {fit} workers instead of {asked}, so {jobs} jobs at a time; "
            "raise it with `ulimit -n` (systemd: LimitNOFILE=)",
        )

    def no_worker(self, error: object) -> None:
        self._seldom("worker", "error", f"no more workers can be started now: {error}; trying again")

    def app_not_shared(self, note: str) -> None:
        self._say("warning", f"{note}; every worker imports the app for itself, which is slower")

    def no_zygote(self, error: object) -> None:
        self._seldom("zygote", "error", f"no workers can be started: {error}; trying again")

    def parent_died(self) -> None:
        self._say("warning", "the parent process is gone")

    def worker_lost(self, name: str, how: str) -> None:
        self._say("warning", f"worker {name} {how}; it is replaced")

    def given_up(self, what: str, why: str) -> None:
        self._say("error", f"no {what} worker can start, and no more are tried: {why}; its jobs wait for another pool")

    def zygote_lost(self) -> None:
        self._say("warning", "the zygote was lost; a new one is started, its workers finish what they run")

    def zygote_frozen(self) -> None:
        self._say("warning", "the zygote is frozen: it has not answered for seconds; it is killed")

    def job_given(self, claim: Claim, worker: str) -> None:
        tries = f"attempt {claim.attempt} of {claim.max_attempts}"
        self._say("debug", f"job {claim.id} is given to {worker} ({tries}): {_what(claim)}")

    def job_ended(self, report: Report) -> None:
        worker = parts(report.worker)[0]
        if report.started_at is None or report.finished_at is None:
            self._say("debug", f"job {report.id} has ended: {_how(report)}")
            return
        took_s = max(0.0, (report.finished_at - report.started_at) / 1e6)
        self._say("debug", f"job {report.id} has ended on {worker} after {took_s:.3f} s: {_how(report)}")

    def timed_out(self, job: int, limit_s: float) -> None:
        self._say("info", f"job {job} ran over its {limit_s:g} s and is being stopped")

    def refused(self, count: int) -> None:
        self._say("warning", f"{count} late results were refused: the jobs run or ran elsewhere")

    def lost(self) -> None:
        self._say("warning", "this pool was given up by the others; it stops everything and begins anew")

    def store_failed(self, error: object) -> None:
        self._seldom("store", "error", f"the queue cannot be used: {error}; trying again")

    def not_left(self, error: object) -> None:
        self._say(
            "warning", f"the queue could not be told that this pool stops: {error}; its jobs are handed back later"
        )

    def store_back(self) -> None:
        self._seldom("back", "info", "the queue can be used again")

    def serving(self, url: str, where: str, needs_token: bool) -> None:
        self._say("info", f"serves {where} at {url}{'' if needs_token else ' without a token'}; Ctrl-C stops it")

    def server_stopped(self) -> None:
        self._say("info", "stopped")

    def broke(self, what: str, trace: str) -> None:
        self._say("error", f"a {what} request broke the server's rules; this is a bug in Covey:\n{trace}")

    def reaped(self, pool: int, jobs: int, processes: int) -> None:
        self._say("warning", f"pool {pool} was lost: {jobs} jobs handed back, {processes} processes ended")

    def abandoned(self, job: int) -> None:
        self._say("warning", f"job {job} was cancelled: the `covey run` that asked for it is gone")

    # ── containers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def supervises(self, pool: int, pid: int, image: str, server: str) -> None:
        self._say("info", f"pool {pool} (pid {pid}) runs each worker in a container of {image}, on {server}")

    def container_lost(self, worker: str, how: str, delay_s: float | None) -> None:
        then = "" if delay_s is None else f"; it is replaced{f' in {delay_s:.1f} s' if delay_s else ''}"
        self._say("warning", f"worker {worker}: {how}{then}")

    def containers_removed(self, names: list[str]) -> None:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        self._say("warning", f"removed what a lost supervisor left: container {', '.join(names[:5])}{more}")

    def containers_cut(self, workers: list[str]) -> None:
        more = f" and {len(workers) - 10} more" if len(workers) > 10 else ""
        self._say("warning", f"time is up; the containers of {', '.join(workers[:10])}{more} are removed")

    def containers_left(self, error: object, advice: str) -> None:
        self._say("error", f"containers may be left: {error}; remove them with `{advice}`")

    def engine_failed(self, error: object) -> None:
        self._seldom("engine", "error", f"{error}; trying again")

    def draining_containers(self, workers: int) -> None:
        self._say("info", f"no new jobs are taken; waiting for {workers} containers")

    def all_stopped(self) -> None:
        self._say("info", "stopped; no container is left")

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def draining(self, jobs: list[int]) -> None:
        what = f"; waiting for job {', '.join(map(str, jobs[:10]))}" if jobs else ""
        more = f" and {len(jobs) - 10} more" if len(jobs) > 10 else ""
        self._say("info", f"no new jobs are taken{what}{more}")

    def killing(self, jobs: list[int]) -> None:
        self._say("warning", f"ending and handing back: job {', '.join(map(str, jobs[:10]))}")

    def stopped(self, done: int, failed: int) -> None:
        self._say("info", f"stopped; {done} runs succeeded, {failed} failed")
