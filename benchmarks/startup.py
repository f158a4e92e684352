"""Start-up: workers ready beside fresh interpreters that import the same, their memory, and the end of an idle pool."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apsw

from covey.env import start_ticks
from covey.system import process_tree

from . import ground
from .report import Figure
from .timing import alternate, median, ratio_of_pairs

NAME = "startup"
APP = "benchmarks.sizeable:app"
LIMIT_S = 120.0

# What a worker consists of, in an interpreter of its own: the same modules, the same app, ready to be given jobs.
COMMAND_WORKER = "import covey.worker.zygote, covey.worker.command_worker"
PYTHON_WORKER = f"""
import covey.worker.zygote, covey.worker.sync_worker
from covey.worker.main import load_tasks
load_tasks({APP!r})
"""
# The same where every worker is a process of its own that opens the queue and registers there, as a pool does for all.
REGISTERED_WORKER = """
import os
from covey.open import open_engine
from covey.core.model import PoolInfo
from covey.env import boot, hostname, start_ticks
import covey.worker.command_worker
engine, pid = open_engine(os.environ["COVEY_DB"]), os.getpid()
engine.register(
    PoolInfo(name=f"w-{pid}", host=hostname(), boot=boot(), pid=pid, ticks=start_ticks(pid) or 0, queues=None,
             kinds=("command",), count=1, version="", lease_s=30.0)
)
"""
SAY_READY = "\nprint('ready', flush=True)\ninput()"


def run(quick: bool) -> Iterator[Figure]:
    rounds = 1 if quick else 3
    _pool(1, [], app=True)  # compiles what was not, so that the first round does not
    inside: list[float] = []
    shown, fresh, bare, herd = alternate(
        rounds,
        lambda: _pool(16, inside),
        lambda: _fresh(16, REGISTERED_WORKER),
        lambda: _fresh(16, COMMAND_WORKER),
        lambda: _pool(64, []),
    )
    yield Figure(
        NAME, "16 workers, exec to ready and registered", median(shown), median(fresh), "s",
        "16 fresh worker processes in a row, each registers", ("≥", 6),
        note=f"{median(inside):.2g} s of it from the first request to the last ready",
        given=ratio_of_pairs(fresh, shown),
    )  # fmt: skip
    yield Figure(
        NAME, "the same", median(shown), median(bare), "s", "16 bare interpreters in a row, which open no queue",
        given=ratio_of_pairs(bare, shown),
    )  # fmt: skip
    yield Figure(
        NAME, "64 workers, the same", median(herd), median(shown), "s", "16 workers", ("≤", 3),
        given=ratio_of_pairs(herd, shown),
    )  # fmt: skip
    shown, fresh = alternate(rounds, lambda: _pool(16, [], app=True), lambda: _fresh(33, PYTHON_WORKER))
    yield Figure(
        NAME, "the same with an app: 33 workers", median(shown), median(fresh), "s", "33 fresh ones in a row",
        given=ratio_of_pairs(fresh, shown),
    )  # fmt: skip
    ours, theirs = alternate(rounds, _memory_of_a_pool, _memory_of_fresh_ones)
    yield Figure(
        NAME, "16 idle workers with an app, Pss", median(ours), median(theirs), "MiB", "16 fresh ones", ("≤", 0.5),
        given=ratio_of_pairs(ours, theirs),
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        took = [_stop(number) for _ in range(rounds)]
        yield Figure(
            NAME, f"16 idle workers, {number.name} to all gone", median(took), 1, "s", "one second", ("≤", 0.5)
        )


class Pool(ground.Pool):
    """With the sizeable app, or with commands only."""

    def __init__(self, url: str, count: int, *, app: bool = False) -> None:
        command = [sys.executable, "-m", "covey", "worker", "start", "--count", str(count)]
        command += ["--app", APP] if app else []
        self.log = f"{url}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ground.ROOT, env=ground.environ(COVEY_DB=url), stdout=log, stderr=log
            )


# ── until they are ready ────────────────────────────────────────────────────────────────────────────────────────────


def _pool(count: int, inside: list[float], *, app: bool = False) -> float:
    """Seconds from exec until the store shows all of them ready. ``inside`` gains those from request to ready."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        db = ground.connect(url)
        began = time.monotonic()
        with Pool(url, count, app=app) as pool:
            _until_shown(db, pool, count * 2 + 1 if app else count)
            took = time.monotonic() - began
            first, last = db.execute(
                "select min(at) filter (where kind = 'starting'), max(at) filter (where kind = 'ready') from events"
            ).get
            inside.append((last - first) / 1e6)
        db.close()
    return took


def _until_shown(db: apsw.Connection, pool: Pool, count: int) -> list[int]:
    """The pids of so many workers that the store shows ready."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and not pool.ended():
        pids = [row[0] for row in db.execute("select pid from workers where state = 'idle'")]
        if len(pids) >= count:
            return pids
        time.sleep(0.005)
    raise RuntimeError(f"the pool did not start:\n{Path(pool.log).read_text()[-2000:]}")


def _fresh(count: int, code: str) -> float:
    """Seconds until so many interpreters, started one after the other, have each said that they are ready."""
    processes: list[subprocess.Popen[bytes]] = []
    with ground.scratch() as place:
        environ = ground.environ(COVEY_DB=ground.new_queue(place))
        began = time.monotonic()
        try:
            for _ in range(count):
                processes.append(_interpreter(code, environ))
                _hear(processes[-1])
            return time.monotonic() - began
        finally:
            _end(processes)


def _interpreter(code: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code + SAY_READY]
    return subprocess.Popen(
        command, cwd=ground.ROOT, env=environ or ground.environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _hear(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError("an interpreter did not start")


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


# ── what they cost ──────────────────────────────────────────────────────────────────────────────────────────────────


def _memory_of_a_pool() -> float:
    """MiB of 16 workers of a pool with an app, each with its share of what the zygote has beside them."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        db = ground.connect(url)
        with Pool(url, 16, app=True) as pool:
            workers = _until_shown(db, pool, 33)
            (zygote,) = process_tree.children(pool.process.pid)
            found = sum(pss(pid) for pid in (zygote, *workers)) / len(workers) * 16
        db.close()
    return found


def _memory_of_fresh_ones() -> float:
    processes = [_interpreter(PYTHON_WORKER) for _ in range(16)]
    try:
        for process in processes:
            _hear(process)
        return sum(pss(process.pid) for process in processes)
    finally:
        _end(processes)


def pss(pid: int) -> float:
    """Proportional set size in MiB: each page is divided among those that share it."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024


# ── until they are gone ─────────────────────────────────────────────────────────────────────────────────────────────


def _stop(number: signal.Signals) -> float:
    """Seconds from the signal until neither an idle pool of 16 nor any descendant of it lives."""
    with ground.scratch() as place:
        url = ground.new_queue(place)
        db = ground.connect(url)
        with Pool(url, 16) as pool:
            _until_shown(db, pool, 16)
            everybody = [pool.process.pid, *process_tree.descendants(pool.process.pid)]
            began = time.monotonic()
            pool.process.send_signal(number)
            while any(start_ticks(pid) is not None for pid in everybody):
                time.sleep(0.001)
            took = time.monotonic() - began
        db.close()
    return took
