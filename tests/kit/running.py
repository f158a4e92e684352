"""Real pools in processes of their own, on a real database, and the proof that nothing of them is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.core import codec
from covey.core.model import ENDED, Kind
from covey.core.specs import shell_spec, task_spec
from covey.core.view import Attempt, JobView, PoolView
from covey.env import start_ticks
from covey.open import open_engine
from covey.system import process_tree
from covey.testing.until import slack, until
from covey.worker import zygote_guard as guard


class RunningPool:
    """`covey worker start` in a session of its own; what it says goes to a file."""

    def __init__(
        self, yard: Yard, command: Sequence[str], environ: Mapping[str, str], log: Path, inherit: Sequence[int] = ()
    ) -> None:
        self._yard, self._log = yard, log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=dict(environ),
                cwd=yard.home,
                pass_fds=inherit,
                start_new_session=True,
            )
        self.pid = self.process.pid

    # ── what it is ──────────────────────────────────────────────────────────────────────────────────────────────────

    def view(self) -> PoolView | None:
        """Its row; None before it has registered and after it has left."""
        return next((pool for pool in self._yard.engine.pool_views() if pool.pid == self.pid), None)

    @property
    def id(self) -> int:
        return until(self.view, 15, f"the pool registers: {self.said()}").id

    @property
    def guard(self) -> int:
        """Who stands above its zygote."""
        guards = until(
            lambda: [p for p in _alive(process_tree.children(self.pid)) if _name(p) == guard.NAME], 15, "a guard"
        )
        return guards[0]

    @property
    def zygote(self) -> int:
        return until(lambda: _alive(process_tree.children(self.guard)), 15, "the pool has a zygote")[0]

    def workers(self, least: int = 1) -> list[int]:
        """The pids of its workers, once there are that many."""
        zygote = self.zygote
        return until(lambda: _at_least(_alive(process_tree.children(zygote)), least), 15, f"{least} workers")

    def worker_of(self, job: int) -> int:
        """The pid of the worker that runs the job."""

        def find() -> int | None:
            view = self.view()
            return next((w.pid for w in view.workers if w.job_id == job), None) if view else None

        return until(find, 15, f"a worker shows job {job}")

    def processes(self) -> list[int]:
        """Itself and everything below it that lives."""
        return _alive([self.pid, *process_tree.descendants(self.pid)])

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def started(self) -> RunningPool:
        """All of its workers stand ready."""
        until(lambda: " workers in " in self.said() or self.process.poll() is not None, 20, "the workers start")
        assert self.process.poll() is None, self.said()
        return self

    # ── what is done to it ──────────────────────────────────────────────────────────────────────────────────────────

    def send(self, number: int) -> RunningPool:
        self.process.send_signal(number)
        return self

    def ended(self, timeout_s: float = 20) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self.process.wait(timeout_s * slack())
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the pool still runs after {timeout_s:g} s:\n{self.said()}") from None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """It has been told to stop and has done so; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        return self.ended()

    def kill(self) -> None:
        """It is gone as after kill -9; its descendants have to notice by themselves."""
        self.process.kill()
        self.process.wait()


class RunningServer:
    """`covey server` in a session of its own, on a port that it keeps when it is started again."""

    def __init__(
        self, yard: Yard, *flags: str, host: str = "127.0.0.1", environ: Mapping[str, str] | None = None
    ) -> None:
        self._yard, self._flags, self._host, self._environ = yard, flags, host, environ or {}
        self._log = yard.home / "server.log"
        self.port = free_port(host)
        self.url = f"http://{host}:{self.port}"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        asked = [*self._yard.covey(), "server", "--db", self._yard.db, "--host", self._host]
        asked += ["--port", str(self.port), *self._flags]
        with open(self._log, "ab") as file:
            return subprocess.Popen(
                asked,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**self._yard.environ(), **self._environ},
                cwd=self._yard.home,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def started(self, within_s: float = 20) -> RunningServer:
        """It answers."""
        until(lambda: self._answers() or self.process.poll() is not None, within_s, "the server answers")
        assert self.process.poll() is None, self.said()
        return self

    def _answers(self) -> bool:
        try:
            socket.create_connection((self._host, self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """It is gone as after kill -9."""
        self.process.kill()
        self.process.wait()

    def again(self) -> RunningServer:
        """Another one is on its way, in the same place."""
        self.process = self._start()
        return self

    def stop(self) -> int:
        """Its exit code, once it has stopped."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20 * slack())
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop: {self.said()}") from None


class Yard:
    """A queue and the pools that work on it, in a directory. Leaving the block ends them and looks for leftovers."""

    def __init__(
        self,
        home: Path,
        *,
        url: str | None = None,
        app: str | None = None,
        path: Sequence[Path] = (),
        **settings: object,
    ) -> None:
        """A file in that directory, unless ``url`` names another queue."""
        self.home, self._app, self._path = home, app, [*path, home]
        self.db = url or str(home / "queue.db")
        self.engine = open_engine(self.db)
        self.pools: list[RunningPool] = []
        self.server: RunningServer | None = None
        for name, value in settings.items():
            self.engine.set_setting(name, str(value))

    @property
    def mark(self) -> str:
        """What every process of this queue's pools carries at the beginning of its COVEY_RUN."""
        return f"{self.engine.database_id}:"

    @property
    def side(self) -> str:
        """Where live output and logs are."""
        return self.engine.store.dialect.side

    # ── a server, and pools ─────────────────────────────────────────────────────────────────────────────────────────

    def serve(self, *flags: str, **options: Any) -> RunningServer:
        """A server of this queue answers; pools that are started from now on go through it."""
        self.server = RunningServer(self, *flags, **options).started()
        return self.server

    def pool(
        self,
        *flags: str,
        url: str | None = None,
        count: int | None = 2,
        app: str | None = None,
        commands_only: bool = False,
        environ: Mapping[str, str] | None = None,
        failpoints: Mapping[str, str] | None = None,
        inherit: Sequence[int] = (),
    ) -> RunningPool:
        """A pool is on its way: through the yard's server if there is one, unless ``url`` names another way."""
        app = None if commands_only else app or self._app
        url = url or (self.server.url if self.server else self.db)
        asked = [*self.covey(), "worker", "start", "--db", url, *flags]
        asked += ["--count", str(count)] if count is not None else []
        asked += ["--app", app] if app else []
        armed = ",".join(f"{name}={action}" for name, action in (failpoints or {}).items())
        log = self.home / f"pool-{len(self.pools)}.log"
        pool = RunningPool(self, asked, {**self.environ(), "COVEY_FAILPOINTS": armed, **(environ or {})}, log, inherit)
        self.pools.append(pool)
        return pool

    @staticmethod
    def covey() -> list[str]:
        return [sys.executable, "-m", "covey"]

    def environ(self) -> dict[str, str]:
        """The environment of a user of this queue: nothing of the test's own Covey settings."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
        path, temp = os.pathsep.join(map(str, self._path)), self.home / "temp"
        temp.mkdir(
            exist_ok=True
        )  # a killed pool behind a server leaves its live output there for the next one to remove
        # Control groups would hide what is missed without them; the tests that are about them turn them on.
        return clean | {"PYTHONPATH": path, "COVEY_CGROUP": "off", "TMPDIR": str(temp)}

    def run(self, *words: str, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
        """The command line, run to its end."""
        return subprocess.run(
            [*self.covey(), *words],
            env=self.environ() | {"COVEY_DB": self.db},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def shell(self, command: str | Sequence[str], **options: Any) -> int:
        """A command is queued, by default in this directory; its id."""
        return self.shells([command], **options)[0]

    def shells(self, commands: Sequence[str | Sequence[str]], **options: Any) -> list[int]:
        options.setdefault("cwd", str(self.home))
        specs = [shell_spec(command, settings=self.engine.settings(), **options) for command in commands]
        return [each.id for each in self.engine.enqueue(specs)]

    def call(self, task: str, *args: Any, kind: Kind = "sync", **options: Any) -> int:
        return self.calls(task, [args], kind=kind, **options)[0]

    def calls(self, task: str, arguments: Sequence[Sequence[Any]], *, kind: Kind = "sync", **options: Any) -> list[int]:
        """Jobs of a task, named within the app's module; their ids."""
        module = (self._app or "").partition(":")[0]
        name = task if "." in task or not module else f"{module}.{task}"
        specs = [
            task_spec(
                name,
                settings=self.engine.settings(),
                kind=kind,
                args=codec.encode([list(args), {}], what="arguments") if args else None,
                **options,
            )
            for args in arguments
        ]
        return [each.id for each in self.engine.enqueue(specs)]

    def job(self, id: int) -> JobView:
        return self.engine.job(id)

    def attempt(self, id: int) -> Attempt:
        """The last attempt that left something to tell."""
        return self.engine.history(id)[-1]

    def is_in(self, id: int, *states: str, within_s: float = 15) -> JobView:
        """The job, once it is in one of the states."""

        def look() -> JobView | None:
            view = self.job(id)
            return view if view.state in states else None

        try:
            return until(look, within_s)
        except AssertionError:
            raise AssertionError(f"not {'/'.join(states)} within {within_s:g} s: {self.describe(id)}") from None

    def runs(self, id: int, within_s: float = 15) -> JobView:
        """The job, once a pool has it."""
        return self.is_in(id, "processing", within_s=within_s)

    def ends(self, *ids: int, within_s: float = 30) -> list[JobView]:
        """The jobs, once all of them have ended."""
        if not self.engine.wait_for(list(ids), within_s * slack()):
            open_ids = [id for id in ids if self.job(id).state not in ENDED]
            raise AssertionError(f"not ended within {within_s:g} s: {self.describe(open_ids[0]) if open_ids else ids}")
        return [self.job(id) for id in ids]

    def completes(self, *ids: int, within_s: float = 30) -> list[JobView]:
        views = self.ends(*ids, within_s=within_s)
        for view in views:
            assert view.state == "completed", self.describe(view.id)
        return views

    def counts(self) -> dict[str, int]:
        return {state: count for state, count in self.engine.status().counts.items() if count}

    def describe(self, id: int) -> str:
        view = self.job(id)
        said = "".join(f"\n── {pool.pid}\n{pool.said()}" for pool in self.pools)
        facts = f"attempts {view.attempts}, interruptions {view.interruptions}, pool {view.pool}, error {view.error!r}"
        return f"job {id} is {view.state} ({facts}){said}"

    # ── what they did, and what they left ───────────────────────────────────────────────────────────────────────────

    def traces(self, name: str = "traces") -> list[str]:
        """Lines that jobs have appended to a file of that name."""
        with contextlib.suppress(FileNotFoundError):
            return (self.home / name).read_text().splitlines()
        return []

    def trace(self, name: str = "traces", least: int = 1, within_s: float = 15) -> list[str]:
        """The lines, once there are that many."""
        return until(lambda: _at_least(self.traces(name), least), within_s, f"{least} lines in {name}")

    def pid_in(self, name: str) -> int:
        """The pid that a job has written into a file."""
        return int(self.trace(name)[0])

    def of_job(self, id: int) -> list[int]:
        """Living processes that carry the mark of a run of this job."""
        pools = {pool.id for pool in self.engine.pool_views()} | {self.job(id).pool}
        fence = self.job(id).fence
        wanted = [f"{self.mark}{pool}:{id}:{n}" for pool in pools for n in range(fence + 1)]
        return [pid for mark in wanted for pid in _alive(process_tree.marked(mark))]

    def leftovers(self) -> list[int]:
        return _alive(process_tree.marked(self.mark))

    def close(self) -> None:
        """Every pool is stopped and no process carries this queue's mark; AssertionError if one does after 2 s."""
        for pool in self.pools:
            if pool.process.poll() is None:
                pool.send(signal.SIGCONT)
                pool.send(signal.SIGTERM)
                pool.send(signal.SIGINT)  # a second signal is "now"; two of the same kind might melt into one
        for pool in self.pools:
            with contextlib.suppress(subprocess.TimeoutExpired):
                pool.process.wait(15)
        stuck = [pool for pool in self.pools if pool.process.poll() is None]
        for pool in stuck:
            pool.kill()
        if self.server:
            self.server.stop()
        try:
            until(lambda: not self.leftovers(), 2)
        except AssertionError:
            told = [f"{pid}: {_command_line(pid)}" for pid in self.leftovers()]
            process_tree.kill_marked(self.mark)
            raise AssertionError(f"processes were left behind: {told}") from None
        finally:
            self.engine.close()
        assert not stuck, f"did not stop: {stuck[0].said()}"

    def __enter__(self) -> Yard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def gone(*pids: int) -> bool:
    """True when none of them lives; a zombie counts as gone."""
    return not _alive(list(pids))


def zombies(pid: int) -> list[int]:
    """Dead children that a process has not buried."""
    return [child for child in process_tree.children(pid) if start_ticks(child) is None]


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def memory(pid: int) -> int:
    """Resident bytes."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """A stopwatch on the monotonic clock, running from its making."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def s(self) -> float:
        return time.monotonic() - self._began

    def within(self, limit_s: float) -> bool:
        """Whether no more than that has passed, as on an idle machine: with much to do, more is allowed."""
        return self.s <= limit_s * slack()


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])


def _alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if start_ticks(pid) is not None]


def _at_least(found: list[Any], least: int) -> list[Any] | None:
    return found if len(found) >= least else None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(gone)"
