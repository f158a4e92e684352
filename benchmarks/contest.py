"""One contestant on one kind of work: its producer, its workers, and what is seen of both.

The drain is watched through the task's own count, so that no question disturbs the store; only the end is asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from covey.env import alive, start_ticks

from . import ground
from .environments import Missing
from .idle import cpu_ns
from .peers import trace
from .startup import pss
from .stores import Given, Store
from .timing import median, percentile

ANSWER_S = 60.0
FIRST_S = 30.0
LOOK_S = 0.004
GRACE_S = 3.0
SETTLE_S = 0.5  # until workers that have just had something to do are idle


class Failed(Exception):
    """The measure gave nothing; the text says why."""


@dataclass(frozen=True)
class Contestant:
    """A queue as it is measured: its module in benchmarks/peers, the interpreter that has it, which settings."""

    module: str
    python: Path
    variant: str = ""

    def producer(self) -> list[str]:
        return [str(self.python), "-m", "benchmarks.peers.produce", self.module]

    def environ(self, given: Given, *, starts: bool = False) -> dict[str, str]:
        told = {"PLACE": str(given.place), "URL": given.url, "VARIANT": self.variant, "STARTS": "1" if starts else ""}
        inherited = {name: value for name, value in ground.environ().items() if not name.startswith("COVEY_")}
        return inherited | {f"COMPARE_{name}": value for name, value in told.items()} | {"PYTHONPATH": str(ground.ROOT)}


@dataclass(frozen=True)
class Sizes:
    """How much work; every part is bounded in time too."""

    rounds: int
    one: int
    one_s: float
    many: int
    drain: int
    drain_s: float
    pickups: int
    idle_s: float
    backlogs: tuple[int, ...]
    backlog_s: float
    fill_s: float
    commands: int


FULL = Sizes(
    rounds=3, one=1_000, one_s=0.5, many=3_000, drain=20_000, drain_s=1.5, pickups=100, idle_s=2.0,
    backlogs=(1_000, 10_000, 100_000, 1_000_000), backlog_s=1.2, fill_s=30,
    commands=900,  # from 1,000 on task-spooler hangs
)  # fmt: skip
QUICK = Sizes(
    rounds=1, one=200, one_s=0.3, many=1_000, drain=5_000, drain_s=1.0, pickups=15, idle_s=1.0,
    backlogs=(1_000, 10_000), backlog_s=0.7, fill_s=20, commands=300,
)  # fmt: skip


class Producer:
    """The side that enqueues, in the contestant's interpreter; asked line by line."""

    def __init__(self, contestant: Contestant, given: Given) -> None:
        self.contestant, self.given = contestant, given
        self._log = given.place / "producer.log"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                contestant.producer(), cwd=ground.ROOT, env=contestant.environ(given), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.about: dict[str, Any] = {}

    def __enter__(self) -> Producer:
        try:
            self.about = self.ask("open")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, question: str, within_s: float = ANSWER_S, **given: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"ask": question, **given}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"the producer ended: {last_line(self._log)}") from None
        ready, _, _ = select.select([self._process.stdout], [], [], within_s)
        if not ready:
            raise Failed(f"{question} took more than {within_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the producer ended: {last_line(self._log)}")
        said = json.loads(line)
        if "failed" in said:
            raise Failed(f"{question}: {said['failed']}")
        return said["answer"]

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Workers:
    """So many workers of the contestant, as processes; gone afterwards with everything they started."""

    def __init__(self, producer: Producer, count: int, *, starts: bool = False) -> None:
        self.log = producer.given.place / "workers.log"
        environ = producer.contestant.environ(producer.given, starts=starts)
        commands = producer.ask("commands", workers=count)
        self.began = time.monotonic_ns()
        with open(self.log, "ab") as log:
            self._processes = [
                subprocess.Popen(
                    command, cwd=ground.ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )
                for command in commands
            ]  # fmt: skip

    def __enter__(self) -> Workers:
        return self

    def pids(self) -> list[int]:
        found = []
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                family = psutil.Process(process.pid)
                found += [family.pid, *(child.pid for child in family.children(recursive=True))]
        return found

    def check(self) -> None:
        if any(start_ticks(process.pid) is None for process in self._processes):
            raise Failed(f"a worker ended: {last_line(self.log)}")

    def __exit__(self, *_: object) -> None:
        family = {pid: start_ticks(pid) for pid in self.pids()}
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while (left := [pid for pid, ticks in family.items() if ticks and alive(pid, ticks)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.01)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # its number is surely its own: it was not waited for yet
            process.wait()


def said(problem: Exception) -> str:
    """One line: it is to stand in a list."""
    told = str(problem) if isinstance(problem, (Failed, Missing)) else f"{type(problem).__name__}: {problem}"
    return " ".join(told.split())


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


# ── measures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def measures(contestant: Contestant, store: Store, sizes: Sizes) -> dict[str, Any]:
    """One round of everything but the backlog: figures by name, and why those are missing that are."""
    found: dict[str, Any] = {}
    for name, measure in (
        ("enqueue", lambda: _enqueue(contestant, store, sizes)),
        ("drain1", lambda: _drain(contestant, store, 1, sizes)),
        ("drain2", lambda: _drain(contestant, store, 2, sizes)),
        ("session", lambda: _session(contestant, store, sizes)),
    ):
        try:
            found |= measure()
        except Exception as problem:  # whatever it is: named, not dropped
            found.setdefault("failed", {})[name] = said(problem)
    return found


def _enqueue(contestant: Contestant, store: Store, sizes: Sizes) -> dict[str, Any]:
    with store.fresh() as given, Producer(contestant, given) as producer:
        one = producer.ask("one", count=sizes.one, limit_s=sizes.one_s)
        return {"one": one, "many": producer.ask("many", count=sizes.many), "about": producer.about}


def _drain(contestant: Contestant, store: Store, workers: int, sizes: Sizes) -> dict[str, Any]:
    rate, twice = drain(contestant, store, workers, sizes.drain, sizes.drain_s)
    return {f"drain{workers}": rate} | ({f"twice{workers}": twice} if twice else {})


def drain(
    contestant: Contestant, store: Store, workers: int, jobs: int, limit_s: float, fill_s: float = ANSWER_S
) -> tuple[float, int]:
    """Jobs a second, from the first that runs until none is left or the time is over; how many ran twice."""
    with store.fresh() as given, Producer(contestant, given) as producer:
        producer.ask("fill", fill_s, count=jobs)
        words = trace.words(str(given.place))
        with Workers(producer, workers) as crew:
            _until(lambda: sum(words) > 0, FIRST_S, crew, "no job had run")
            began, before = time.monotonic(), sum(words)
            while (done := min(jobs, sum(words))) < jobs and time.monotonic() - began < limit_s:
                crew.check()
                time.sleep(LOOK_S)
            took = time.monotonic() - began
            if done == jobs:
                _until(lambda: producer.ask("left") == 0, FIRST_S, crew, "all had run, but some had not ended")
                took = time.monotonic() - began
            return (done - before) / took, max(0, sum(words) - jobs)


def _session(contestant: Contestant, store: Store, sizes: Sizes) -> dict[str, Any]:
    """Two workers from their start on: the first job, single jobs, then nothing to do."""
    with store.fresh() as given, Producer(contestant, given) as producer:
        producer.ask("one", count=1, limit_s=1.0)
        with Workers(producer, 2, starts=True) as crew:
            took = _first_then_single(producer, crew, sizes.pickups)
            started = (trace.starts(str(given.place))[0] - crew.began) / 1e9
            time.sleep(SETTLE_S)
            ours, theirs = crew.pids(), given.servers()
            before, at = (cpu_ns(ours), cpu_ns(theirs)), time.monotonic()
            time.sleep(sizes.idle_s)
            used, over = (cpu_ns(ours) - before[0], cpu_ns(theirs) - before[1]), time.monotonic() - at
            crew.check()
            return {
                "start": started,
                "p50": median(took),
                "p99": percentile(took, 0.99),
                "idle": used[0] / over / 1e7,
                "idle_server": used[1] / over / 1e7,
                "memory": sum(pss(pid) for pid in ours) / 2,
            }


def pickups(contestant: Contestant, store: Store, count: int) -> list[float]:
    """Milliseconds from the enqueue call to the task, two workers idle before each."""
    with store.fresh() as given, Producer(contestant, given) as producer:
        producer.ask("one", count=1, limit_s=1.0)
        with Workers(producer, 2, starts=True) as crew:
            return _first_then_single(producer, crew, count)


def backlog(contestant: Contestant, store: Store, sizes: Sizes) -> dict[str, Any]:
    """The drain's rate at its beginning by how much is waiting, two workers; what stopped it."""
    found: dict[str, Any] = {"backlog": {}}
    for waiting in sizes.backlogs:
        try:
            rate, _ = drain(contestant, store, 2, waiting, sizes.backlog_s, sizes.fill_s)
        except Exception as problem:
            found["stopped"] = {"at": waiting, "why": said(problem)}
            break
        found["backlog"][str(waiting)] = rate
    return found


def _first_then_single(producer: Producer, crew: Workers, count: int) -> list[float]:
    place = str(producer.given.place)
    _until(lambda: 0 in trace.starts(place), FIRST_S, crew, "no job had run")
    time.sleep(SETTLE_S)
    took: list[float] = producer.ask("pickup", count * 3.0 + 30, count=count)
    return took


def _until(true: Callable[[], bool], limit_s: float, crew: Workers, otherwise: str) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        crew.check()
        if time.monotonic() > deadline:
            raise Failed(f"{otherwise} after {limit_s:g} s: {last_line(crew.log)}")
        time.sleep(LOOK_S)
