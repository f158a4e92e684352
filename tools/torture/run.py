"""One run: actors are started, kept alive and killed; what is left gets done; then the evidence is looked at."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.running import free_port

from covey.errors import InvalidInput
from covey.open import open_engine
from covey.system import process_tree
from covey.testing.until import until

from . import audit, evidence
from .checks import Findings, verdict
from .jobs import DEEP, DIRECTORY, MUTANTS, SETTINGS
from .killer import Killer
from .observer import Books

if TYPE_CHECKING:
    from tests.kit.postgres import Server

CLIENTS = 4
POOLS = 3
WORKERS = 2  # of each kind in each pool
LEAST_OPEN, MOST_OPEN = 60, 200  # jobs: so many at least, that there is something to kill, and never a mountain
AHEAD = 0.03  # the share that jobs may be ahead of kills, or kills of jobs
LAST = 0.8  # this share of the jobs, and no more, may be there before the kills have caught up: else nobody is at work
LOOK_S = 0.3
FIRST_BACKUP, BACKUP_EVERY = 5, 50  # kills
STILL_S = 20.0
LEASE_S = 1.5
SOON_S = 5.0  # by then everything that was started has noticed that it is over
ENDLESS = 1 << 40


class Torture:
    """``jobs`` and ``kills``: it goes on until both are reached; without them, for ``seconds``.

    On a file in that directory, unless ``url`` names another queue, or ``postgres`` a server that may be killed too.
    ``served``: clients and pools go through a server, which is killed as well. ``still_s``: when nothing has moved for
    so long in the end, what is left is stranded. ``lease_s``: a short one heals what a pool that lives has forgotten.
    ``kinds``: only these are struck.
    """

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        jobs: int | None = None,
        kills: int | None = None,
        seconds: float | None = None,
        limit_s: float = 240,
        still_s: float = STILL_S,
        lease_s: float = LEASE_S,
        mutants: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
        url: str | None = None,
        postgres: Server | None = None,
        served: bool = False,
    ) -> None:
        for program in ("flock", "setsid"):
            if shutil.which(program) is None:
                raise InvalidInput(f"the jobs need the program {program}; it comes with util-linux")
        self.directory, self.seed, self.jobs, self.kills, self.mutants = directory, seed, jobs, kills, mutants
        self.db = postgres.url("torture") if postgres else url or str(directory / "queue.db")
        self._kinds, self._postgres, self._port = kinds, postgres, free_port("127.0.0.1") if served else 0
        self._seconds, self._limit_s = limit_s if seconds is None else seconds, limit_s
        self._lease_s, self._still_s, self._stop_s = lease_s, still_s, 3.0 if mutants else 30.0
        self._actors: dict[str, dict[str, subprocess.Popen[bytes]]] = {
            "server": {},
            "client": {},
            "pool": {},
            "canceller": {},
        }
        self._quitters: list[str] = []
        self._enqueued, self._next_look, self._next_backup = 0, 0.0, FIRST_BACKUP
        for name in ("locks", "temp"):
            (directory / name).mkdir()
        own = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
        # Control groups would hide what is missed without them.
        self._environ = own | {
            DIRECTORY: str(directory),
            MUTANTS: " ".join(mutants),
            "TMPDIR": str(directory / "temp"),
            "COVEY_CGROUP": "off",
        }

    def run(self) -> Findings:
        began, before = time.monotonic(), evidence.children()
        self._end, self._deadline = began + self._seconds, began + self._limit_s
        engine = open_engine(self.db)
        try:
            audit.install(engine)
            for name, value in (SETTINGS | {"lock_lease_seconds": str(self._lease_s)}).items():
                engine.set_setting(name, value)
            engine.set_queue(DEEP, max_depth=2)
            self._books = Books(engine, self.directory, copies_live="live_copy" in self.mutants)
            self._killer = Killer(
                self,
                self._books,
                self.seed,
                self.directory / "kills",
                self._postgres,
                served=bool(self._port),
                kinds=self._kinds,
            )
            try:
                self._torment()
                (self.directory / "enough").touch()
                self._drain()
            finally:
                self._stop()
                self._books.close()
            left = self._left_behind(before)
            seen = evidence.Evidence(engine, self.directory)
            checks = verdict(seen) | self._own_checks(seen) | left
            missed, took = self._killer.missed(), time.monotonic() - began
            return Findings(checks, self._killer.strikes, self._figures(seen), took, missed)
        finally:
            engine.close()
            process_tree.send(evidence.processes(self.directory), signal.SIGKILL)

    # ── the course of it ────────────────────────────────────────────────────────────────────────────────────────────

    def _torment(self) -> None:
        self._keep_actors()
        while not self._is_enough() and time.monotonic() < min(self._end, self._deadline):
            self._keep_actors()
            self._steer()
            time.sleep(self._killer.gap_s())
            if self._may_kill():
                self._killer.strike()
            if self._killer.kills >= self._next_backup:
                self._next_backup += BACKUP_EVERY
                self._books.back_up()

    def _is_enough(self) -> bool:
        if self.jobs is None and self.kills is None:
            return False
        return (self.jobs is None or self._clients_are_done()) and self._killer.kills >= (self.kills or 0)

    def _clients_are_done(self) -> bool:
        return all(process.poll() == 0 for process in self._actors["client"].values())

    def _steer(self) -> None:
        """Clients hold still while there is much to do, or while they are ahead of the killer."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_S
        self._enqueued = self._books.enqueued()
        ahead = self._share_of_jobs() > self._share_of_kills() + AHEAD
        hold = self.directory / "hold"
        # Of few jobs a part is kept back too, or all would be done before half of the kills.
        least = min(LEAST_OPEN, self.jobs // 10) if self.jobs else LEAST_OPEN
        too_far = ahead and self._share_of_jobs() >= LAST
        if too_far or self._books.unfinished() > (least if ahead else MOST_OPEN):
            hold.touch()
        else:
            hold.unlink(missing_ok=True)

    def _may_kill(self) -> bool:
        if self.kills is None:
            return True
        if self._killer.kills >= self.kills:
            return False
        return self._clients_are_done() or self._share_of_kills() <= self._share_of_jobs() + AHEAD

    def _share_of_jobs(self) -> float:
        return self._enqueued / self.jobs if self.jobs and self.kills else 0.0

    def _share_of_kills(self) -> float:
        return self._killer.kills / self.kills if self.jobs and self.kills else 0.0

    def _drain(self) -> None:
        """Whatever is left gets done by pools that nobody kills."""
        (self.directory / "hold").unlink(missing_ok=True)
        last, since = self._books.counts(), time.monotonic()
        while time.monotonic() < self._deadline and time.monotonic() < since + self._still_s:
            self._keep_actors()
            time.sleep(0.1)
            counts = self._books.counts()
            if self._clients_are_done() and not self._books.unfinished():
                return
            if counts != last or not self._books.pools_at_work():
                last, since = counts, time.monotonic()

    # ── the actors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def pids(self, role: str) -> list[int]:
        """Who of them can be struck."""
        if role == "server" and not self._answers():
            return []
        return [process.pid for process in self._actors[role].values() if process.poll() is None]

    def is_over(self, role: str) -> bool:
        """Whether nobody of that role will come any more."""
        return role == "client" and self._clients_are_done()

    def _keep_actors(self) -> None:
        """Whoever was killed is replaced; who ended by himself is remembered."""
        if self._port:
            self._keep("server", "0", str(self._port))
        share = ENDLESS if self.jobs is None else -(-self.jobs // CLIENTS)
        for number in range(CLIENTS):
            self._keep("client", str(number), str(number), str(self.seed), str(share))
        for number in range(POOLS):
            self._keep("pool", str(number), f"p{number}", str(WORKERS))
        if "forgetful" not in self.mutants:  # who cancels what was forgotten hides that it was
            self._keep("canceller", "0", str(self.seed), str(0.1 if "no_fence" in self.mutants else 1.0))

    def _keep(self, role: str, name: str, *words: str) -> None:
        before = self._actors[role].get(name)
        if before is not None:
            code = before.poll()
            if code is None or (role == "client" and code == 0):
                return
            if code != -signal.SIGKILL and (role != "pool" or self._books.has_worked(before.pid)):
                self._quitters.append(f"{role} {before.pid} ended by itself ({code})")
        self._actors[role][name] = self._start(role, *words)

    def _start(self, role: str, *words: str) -> subprocess.Popen[bytes]:
        way = f"http://127.0.0.1:{self._port}" if self._port and role in ("client", "pool") else self.db
        with open(self.directory / f"{role}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tools.torture.actors", role, way, *words],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def _stop(self) -> None:
        self._killer.close()
        for process in self._actors["pool"].values():
            process_tree.send([process.pid], signal.SIGCONT)
            process.terminate()
        for process in self._actors["canceller"].values():
            process.kill()
        deadline = time.monotonic() + self._stop_s
        for role in ("pool", "client", "canceller"):
            for process in self._actors[role].values():
                self._await(role, process, deadline)
        for process in self._actors["server"].values():
            process.terminate()
            self._await("server", process, time.monotonic() + self._stop_s)

    def _await(self, role: str, process: subprocess.Popen[bytes], deadline: float) -> None:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._quitters.append(f"{role} {process.pid} did not stop")
            process.kill()
            process.wait()

    # ── what is to be said of it ────────────────────────────────────────────────────────────────────────────────────

    def _left_behind(self, before: set[int]) -> dict[str, list[str]]:
        with contextlib.suppress(AssertionError):
            until(lambda: not evidence.processes(self.directory), SOON_S)
        left = dict.fromkeys([*evidence.processes(self.directory), *sorted(evidence.children() - before)])
        return {
            "processes left": [evidence.described(pid) for pid in left],
            "files left": evidence.files(self._books.engine, self.directory),
        }

    def _own_checks(self, seen: evidence.Evidence) -> dict[str, list[str]]:
        figures = [(self._killer.kills, self.kills, "kills"), (len(seen.roots), self.jobs, "jobs")]
        checks = {
            "actors that ended by themselves": self._quitters,
            "figures not reached": [f"{n} of {due} {what}" for n, due, what in figures if due is not None and n < due],
        }
        if self.db.endswith(".db"):
            checks["backups"] = self._books.bad_backups
            if not self._port:  # a file is never away, so nobody may be told that it is
                refused = [request.refused for request in seen.requests if request.refused is not None]
                checks["errors told to clients"] = refused + seen.errors
        return checks

    def _figures(self, seen: evidence.Evidence) -> dict[str, int]:
        backups = {"backups of the living file": self._books.backups} if self.db.endswith(".db") else {}
        return seen.figures() | backups
