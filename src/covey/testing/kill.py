"""The kill test: clients enqueue, pools work, a killer takes pools, zygotes and workers; then a checker looks.

With ``served`` clients and pools go through a server, which is killed too and started again in the same place.

Traces are kept outside the queue: what clients were told, what jobs did, and a log that a trigger writes of every
change of a job's state, so that the checker need not believe the code under test.

    python -m covey.testing.kill client DB DIR SEED COUNT [MUTANT]
    python -m covey.testing.kill canceller DB DIR COUNT
    python -m covey.testing.kill pool DB NAME [MUTANT]
    python -m covey.testing.kill server DB PORT [MUTANT]
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from msgspec import Struct

from ..app import Covey
from ..compose import open_client, open_engine
from ..core.model import ENDED, MAX_INTERRUPTIONS, SHELL, Policy, Reply, Spec, Turn
from ..engine.engine import Engine
from ..errors import Refused, StoreError
from ..remote.remote import Remote
from ..worker import family
from ..worker.context import Context
from .pools import free_port

PACE_S = 0.05  # between two enqueues of a client, so that there is always something to kill
MANY = 1000  # attempts: a job must outlive everything that the killer does
app = Covey()

WORKING = "select pid from {pools} where id in (select pool from {workers})"
AUDIT = {
    "sqlite": """
create table audit (n integer primary key, job integer, was text, state text, fence integer);
create trigger audit_change after update on jobs
when old.state <> new.state or old.fence <> new.fence or old.finished_at is not new.finished_at
begin
    insert into audit (job, was, state, fence) values (new.id, old.state, new.state, new.fence);
end;
""",
    "postgres": """
create table {audit} (n bigserial primary key, job bigint, was text, state text, fence bigint);
create function {audit_change}() returns trigger language plpgsql as $$ begin
    insert into {audit} (job, was, state, fence) values (new.id, old.state, new.state, new.fence);
    return null;
end $$;
create trigger audit_change after update on {jobs} for each row
when (old.state <> new.state or old.fence <> new.fence or old.finished_at is distinct from new.finished_at)
execute function {audit_change}();
""",
}
# What may follow what when nobody retries by hand: written down here again, so that the rules themselves are checked.
MAY_FOLLOW = {
    "pending": {"processing", "cancelled"},
    "processing": {"pending", "completed", "failed", "dead", "cancelled"},
    "failed": {"pending", "cancelled"},
    "cancelled": {"cancelled"},
}


class Findings(Struct):
    """What the checker has to say. `problems` is empty when every promise was kept."""

    problems: list[str]
    kills: Counter[str]
    jobs: int
    starts: int
    seconds: float


# ── the jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.task(max_attempts=MANY, backoff_base=1, max_backoff=0.01)
def trace(ctx: Context, seconds: float) -> int:
    """Leaves a line when it starts, and holds a lock that a second run at the same time would miss."""
    directory = Path(os.environ["COVEY_KILL_DIR"])
    with open(directory / "locks" / str(ctx.job_id), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _append(directory / "overlaps", f"{ctx.job_id}\n")
        _append(directory / "starts", f"{ctx.job_id}\n")
        time.sleep(seconds)
    return ctx.job_id


def _append(path: Path, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, line.encode())
    os.close(fd)


# ── the actors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def client(db: str, directory: str, seed: int, count: int, mutant: str) -> None:
    """Enqueues one by one and in small batches; writes down what it was told, at once."""
    queue, rng = open_client(db), random.Random(seed)
    acks = Path(directory) / f"acks-{seed}"
    left = count
    while left:
        specs = [_spec(rng, directory) for _ in range(min(left, rng.choice((1, 1, 1, 5, 20))))]
        left -= len(specs)
        if mutant == "early_answer":
            assert isinstance(queue, Engine)
            _answer_before_commit(queue, specs, acks)
        else:
            ids = _until_answered(queue, specs, f"{seed}-{left}")
            _append(acks, "".join(f"{id}\n" for id in ids))
        time.sleep(rng.uniform(0, PACE_S))


def _until_answered(queue: Engine | Remote, specs: list[Spec], request: str) -> list[int]:
    """What is not answered is sent again under the same name, so that it counts once."""
    while True:
        try:
            return [each.id for each in queue.enqueue(specs, request=request)]
        except StoreError:
            if not isinstance(queue, Remote):
                raise
            time.sleep(0.1)


def canceller(db: str, directory: str, count: int) -> None:
    """Asks for the end of jobs that run just now, so that some end by themselves in the same moment."""
    engine, rng = open_engine(db), random.Random(count)
    while count:
        running = engine.store.raw("select id from {jobs} where pool is not null and state = 'processing'")
        for (id,) in rng.sample(running, min(1, len(running))):
            _append(Path(directory) / "cancels", f"{id}\n")
            with contextlib.suppress(Refused):
                engine.cancel([id])
                count -= 1
        time.sleep(0.005)


def _spec(rng: random.Random, directory: str) -> Spec:
    policy = Policy(max_attempts=MANY, backoff_base=1, backoff_cap_s=0.01)
    seconds = rng.choice((0, 0.005, 0.05, 0.2, 0.4))
    if rng.random() < 0.25:
        args = f'{{"command":"echo $COVEY_JOB_ID >> {directory}/starts; sleep {seconds}"}}'
        return Spec(task=SHELL, kind="command", args=args, policy=policy)
    return Spec(task="covey.testing.kill.trace", args=f"[[{seconds}],{{}}]", policy=policy)


def _answer_before_commit(engine: Engine, specs: list[Spec], acks: Path) -> None:
    """Mutant: the client is told before the commit, and now and then dies in between: its ids go to somebody else."""
    (last,) = engine.store.raw("select coalesce(max(seq), 0) from sqlite_sequence where name = 'jobs'")[0]
    _append(acks, "".join(f"{last + 1 + n}\n" for n in range(len(specs))))
    if random.random() < 0.1:
        os.kill(os.getpid(), signal.SIGKILL)
    engine.enqueue(specs)


def pool(db: str, name: str, mutant: str) -> int:
    from ..pool.start import PoolOptions, run

    source = open_client(db)
    if isinstance(source, Engine):
        plant(source, mutant)
    elif mutant == "forgetful":
        _forget_results(source)
    options = PoolOptions(url=db, count=2, app="covey.testing.kill:app", name=name, quiet=True)
    return run(source, options)


def server(db: str, port: int, mutant: str) -> int:
    from .. import compose
    from ..cli import serving

    def open(url: str, **options: bool) -> Engine:
        engine = open_engine(url, **options)
        plant(engine, mutant)
        return engine

    compose.open_engine = open  # type: ignore[assignment]
    return serving.start(db, hosts=["127.0.0.1"], port=port, names=[], needs_token=False, quiet=True)


def plant(engine: Engine, mutant: str) -> None:
    statements = engine.store._sql
    if mutant == "no_fence":
        _without_fence(engine)
    elif mutant == "uncounted":
        statements["claim"] = statements["claim"].replace("attempts = attempts + 1,", "")


def _forget_results(source: Remote) -> None:
    """Mutant: what a turn reported that got no answer is not told again, though the pool believes that it was."""
    turn = source.turn

    def told(asked: Turn) -> Reply:
        try:
            return turn(asked)
        except StoreError:
            asked.reports.clear()
            raise

    source.turn = told  # type: ignore[assignment,method-assign]


def _without_fence(engine: Engine) -> None:
    """Mutant: whatever a pool reports is written, even about a run that is no longer the job's."""
    statements = engine.store._sql
    statements["complete"] = re.sub(r"and \S*jobs\.fence = .*", "", statements["complete"])
    statements["change"] = statements["change"].replace("and state = :was and fence = :expected", "")


# ── the killer ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Torture:
    def __init__(
        self,
        directory: Path,
        *,
        jobs: int,
        kills: int,
        seed: int,
        mutant: str = "",
        limit_s: float = 240,
        url: str | None = None,
        served: bool = False,
    ) -> None:
        """On a file in that directory, unless ``url`` names another queue."""
        self._port = free_port("127.0.0.1") if served else 0
        self._server: subprocess.Popen[bytes] | None = None
        self._quitters: list[str] = []
        self.directory, self.jobs, self.kills, self.mutant = directory, jobs, kills, mutant
        self.db = url or str(directory / "queue.db")
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._pools: list[subprocess.Popen[bytes]] = []
        self._clients: list[subprocess.Popen[bytes]] = []
        self._wanted_pools = 3
        self._deadline = time.monotonic() + limit_s
        self._resumes: list[subprocess.Popen[bytes]] = []
        for name in ("locks", "temp"):
            (directory / name).mkdir()
        # What a killed pool leaves in its temporary directory goes when the next one starts; of the last ones it stays.
        temp = str(directory / "temp")
        self._environ = os.environ | {"COVEY_KILL_DIR": str(directory), "COVEY_DB": self.db, "TMPDIR": temp}

    def run(self) -> Findings:
        began = time.monotonic()
        self.engine = open_engine(self.db)
        with self.engine.store.transaction():
            self.engine.store.dialect.script(AUDIT[self.engine.store.dialect.name])
        for name, value in (("heartbeat_seconds", "0.3"), ("lock_lease_seconds", "1.5")):
            self.engine.set_setting(name, value)
        try:
            self._keep_server()
            self._start_clients()
            while self._goes_on():
                self._keep_server()
                self._keep_pools()
                time.sleep(self.rng.uniform(0.02, 0.25))
                self._kill_one()
            self._drain()
        finally:
            self._stop()
        try:
            problems = check(self.engine, self.directory) + self._quitters
        finally:
            self.engine.close()
        return Findings(problems, self.counts, self.jobs, self._starts(), time.monotonic() - began)

    def _goes_on(self) -> bool:
        working = any(process.poll() is None for process in self._clients)
        return (working or sum(self.counts.values()) < self.kills) and time.monotonic() < self._deadline

    def _start_clients(self) -> None:
        share = self.jobs // 4
        for number in range(4):
            self._clients.append(self._spawn("client", str(self.directory), str(number), str(share)))
        self._canceller = self._spawn("canceller", str(self.directory), str(self.jobs // 6))

    def _keep_server(self) -> None:
        if self._server is not None and self._server.poll() not in (None, -signal.SIGKILL):
            said = (self.directory / "server.log").read_text(errors="replace")
            raise AssertionError(f"the server ended by itself ({self._server.returncode}): {said}")
        if self._port and (self._server is None or self._server.poll() is not None):
            self._server = self._spawn("server", str(self._port))

    def _keep_pools(self) -> None:
        ended = [process for process in self._pools if process.poll() is not None]
        for process in ended:
            if process.returncode != -signal.SIGKILL and self._has_worked(process.pid):
                self._quitters.append(f"pool {process.pid} ended by itself ({process.returncode})")
        self._pools = [process for process in self._pools if process.poll() is None]
        while len(self._pools) < self._wanted_pools:
            self._pools.append(self._spawn("pool", f"p{len(self._pools)}"))

    def _has_worked(self, pid: int) -> bool:
        """A pool that finds no server when it starts may say so and end; later it must go on."""
        return any(event.text and f"(pid {pid} on" in event.text for event in self.engine.pool_events(limit=1000))

    def _spawn(self, role: str, *args: str) -> subprocess.Popen[bytes]:
        way = f"http://127.0.0.1:{self._port}" if self._port and role in ("client", "pool") else self.db
        command = [sys.executable, "-m", "covey.testing.kill", role, way, *args, self.mutant]
        log = open(self.directory / f"{role}.log", "ab")  # noqa: SIM115
        try:
            return subprocess.Popen(command, env=self._environ, stdout=log, stderr=log)
        finally:
            log.close()

    def _kill_one(self) -> None:
        if sum(self.counts.values()) >= self.kills:
            return
        what = self.rng.choice(("pool", "zygote", "worker", "worker", "worker", "stop"))
        if self._server:  # there is one server and many workers: whoever is easiest to find must not be the only victim
            what = ("server", what, "pool", what)[sum(self.counts.values()) % 4]
        working = {row[0] for row in self.engine.store.raw(WORKING)}
        if what == "server":
            victims = [self._server.pid] if self._server and len(working) > 1 and self._answers() else []
        elif what in ("pool", "stop"):
            victims = [process.pid for process in self._pools if process.pid in working]
        else:
            zygotes = {row[0] for row in self.engine.store.raw("select zygote_pid from {pools}")}
            marked = family.marked(f"{self.engine.database_id}:")
            victims = [pid for pid in marked if (pid in zygotes) == (what == "zygote")]
        if victims:
            victim = self.rng.choice(victims)
            if what == "stop":
                self._pause(victim)
            else:
                family.send([victim], signal.SIGKILL)
            self.counts[what] += 1

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def _pause(self, pid: int) -> None:
        """Stops a pool for longer than its lease, now and then: it comes back stale."""
        if self.counts["stop"] % 5:
            family.send([pid], signal.SIGKILL)
            return
        family.send([pid], signal.SIGSTOP)
        self._resumes.append(subprocess.Popen(["sh", "-c", f"sleep 2.5; kill -CONT {pid} 2>&-"]))

    def _drain(self) -> None:
        """Whatever is left gets done by pools that nobody kills."""
        while time.monotonic() < self._deadline:
            self._keep_server()
            self._keep_pools()
            counts = self.engine.status().counts
            if not sum(count for state, count in counts.items() if state not in ENDED):
                return
            time.sleep(0.1)

    def _stop(self) -> None:
        for process in self._pools:
            family.send([process.pid], signal.SIGCONT)
            process.terminate()
        self._canceller.kill()
        for process in [*self._pools, *self._clients, self._canceller]:
            try:
                process.wait(3 if self.mutant == "forgetful" else 15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._server:
            self._server.terminate()
            self._server.wait()
        for process in self._resumes:
            process.wait()

    def _starts(self) -> int:
        return len(_lines(self.directory / "starts"))


# ── the checker ─────────────────────────────────────────────────────────────────────────────────────────────────────


def check(engine: Engine, directory: Path) -> list[str]:
    """Every promise that was broken, one line each."""
    problems: list[str] = []
    acked = [int(line) for path in directory.glob("acks-*") for line in path.read_text().split()]
    rows = {row[0]: row[1:] for row in engine.store.raw("select id, state, attempts, interruptions from {jobs}")}
    starts = Counter(map(int, _lines(directory / "starts")))
    problems += [f"lost: job {id} was acknowledged and is not there" for id in acked if id not in rows]
    problems += [f"told twice: id {id}" for id, n in Counter(acked).items() if n > 1]
    if len(rows) != len(set(acked) & rows.keys()):
        extra = rows.keys() - set(acked)
        if not _clients_were_killed(directory):
            problems += [f"unexpected: job {id} was never acknowledged" for id in extra]
    cancelled = set(map(int, _lines(directory / "cancels")))
    for id, (state, attempts, interruptions) in rows.items():
        if state == "dead" and interruptions > MAX_INTERRUPTIONS:
            continue  # the killer was after it: bounded, as promised
        if state != "completed" and not (state == "cancelled" and id in cancelled):
            problems.append(f"stranded: job {id} is {state}")
        if state == "completed" and not attempts:
            problems.append(f"job {id} is {state} without an attempt counted")
        if attempts > starts[id] and state != "cancelled":
            problems.append(f"job {id} was charged {attempts} attempts and started {starts[id]} times")
    problems += _audit(engine)
    problems += [f"overlap: job {id} ran twice at a time" for id in _lines(directory / "overlaps")]
    problems += [f"left behind: process {pid}" for pid in family.marked(f"{engine.database_id}:")]
    return problems


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _clients_were_killed(directory: Path) -> bool:
    return (directory / "clients-killed").exists()


def _audit(engine: Engine) -> list[str]:
    """Every step that a job took must be one it may take; fences rise with every claim and never fall."""
    problems: list[str] = []
    completed: Counter[int] = Counter()
    fences: dict[int, int] = defaultdict(int)
    for job, was, state, fence in engine.store.raw("select job, was, state, fence from {audit} order by n"):
        if state not in MAY_FOLLOW.get(was, ()):
            problems.append(f"job {job}: went from {was} to {state}")
        if fence < fences[job] or (state == "processing" and fence == fences[job]):
            problems.append(f"job {job}: {state} under fence {fence} after {fences[job]}")
        fences[job] = fence
        completed[job] += state == "completed"
    problems += [f"completed twice: job {job}" for job, n in completed.items() if n > 1]
    return problems


def main(role: str, db: str, *rest: str) -> int:
    if role == "client":
        directory, seed, count, mutant = rest
        client(db, directory, int(seed), int(count), mutant)
        return 0
    if role == "canceller":
        directory, count, _ = rest
        canceller(db, directory, int(count))
        return 0
    if role == "server":
        port, mutant = rest
        return server(db, int(port), mutant)
    name, mutant = rest
    return pool(db, name, mutant)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
