"""What Covey says while it works. All wording is here; it goes to standard error, never to standard output."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")


class Log:
    """Lines with a time and a name. A line that repeats is said at most once in ten seconds."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name = name
        wanted = os.environ.get("COVEY_LOG", "warning" if quiet else "info").lower()
        self._least = LEVELS.index(wanted) if wanted in LEVELS else 1
        self._said: dict[str, float] = {}

    def _say(self, level: str, text: str) -> None:
        if LEVELS.index(level) < self._least:
            return
        stamp = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
        try:
            sys.stderr.write(f"{stamp} {self._name} {text}\n")
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
        tail = f"; failed: {', '.join(failed)}" if failed else ""
        self._say("warning" if failed else "info", f"started {ready}/{wanted} workers in {seconds:.1f}s{tail}")

    def app_imports_threads(self, note: str) -> None:
        self._say("warning", f"{note}; every worker imports the app for itself, which is slower")

    def worker_lost(self, name: str, how: str) -> None:
        self._say("warning", f"worker {name} {how}; it is replaced")

    def kind_given_up(self, kind: str, why: str) -> None:
        self._say("error", f"no {kind} worker can start, and no more are tried: {why}; its jobs wait for another pool")

    def zygote_lost(self) -> None:
        self._say("warning", "the zygote was lost; a new one is started, its workers finish what they run")

    def job_failed(self, job: int, error: str | None) -> None:
        self._say("debug", f"job {job} failed: {error}")

    def timed_out(self, job: int, limit_s: float) -> None:
        self._say("info", f"job {job} ran over its {limit_s:g} s and is being stopped")

    def refused(self, count: int) -> None:
        self._say("warning", f"{count} late results were refused: the jobs run or ran elsewhere")

    def lost(self) -> None:
        self._say("warning", "this pool was given up by the others; it stops everything and begins anew")

    def store_failed(self, error: object) -> None:
        self._seldom("store", "error", f"the queue cannot be used: {error}; trying again")

    def store_back(self) -> None:
        self._say("info", "the queue can be used again")

    def reaped(self, pool: int, jobs: int, processes: int) -> None:
        self._say("warning", f"pool {pool} was lost: {jobs} jobs handed back, {processes} processes ended")

    def draining(self, jobs: list[int]) -> None:
        what = f"; waiting for job {', '.join(map(str, jobs[:10]))}" if jobs else ""
        more = f" and {len(jobs) - 10} more" if len(jobs) > 10 else ""
        self._say("info", f"no new jobs are taken{what}{more}")

    def killing(self, jobs: list[int]) -> None:
        self._say("warning", f"ending and handing back: job {', '.join(map(str, jobs[:10]))}")

    def stopped(self, done: int, failed: int) -> None:
        self._say("info", f"stopped; {done} runs succeeded, {failed} failed")
